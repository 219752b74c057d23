"""The renders that are reviewed, tested and installed: a name and the answers that make it."""

from collections.abc import Iterator
from typing import Any

PROJECT_NAME = "my-agent"
TARGETS = ("strands-python", "strands-typescript", "vercel-python", "vercel-typescript")
STORES = ("valkey", "s3", "custom")
EXTRAS = (
    "tracing",
    "mcp",
    "auth",
    "approval",
    "compaction",
    "fallback",
    "evals",
    "ai-sdk-ui",
    "ui",
)
# Besides the default of each framework, which its plain render has.
MODELS = {
    "strands": ("anthropic", "openai", "openai-compatible"),
    "vercel": ("anthropic", "bedrock", "gateway", "openai-compatible"),
}


def renders(target: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The variants of one target: `<base>+<option>` is `<base>` with one more answer."""
    memory = {"long_term_memory": "agentcore"}
    yield target, {"target": target}
    for model in MODELS[target.partition("-")[0]]:
        yield f"{target}+{model}", {"target": target, "model": model}
    for store in STORES:
        yield f"{target}+{store}", {"target": target, "session_store": store}
    yield f"{target}+agentcore", {"target": target, **memory}
    yield f"{target}+knowledge-base", {"target": target, "long_term_memory": "knowledge-base"}
    yield f"{target}+agentcore+runtime", {"target": target, **memory, "deploy": "agentcore"}
    valkey = {"target": target, "session_store": "valkey"}
    yield f"{target}+valkey+agentcore", {**valkey, **memory}
    both = "agentcore-and-knowledge-base"
    yield f"{target}+valkey+agentcore+knowledge-base", {**valkey, "long_term_memory": both}
    yield f"{target}+valkey+container", {**valkey, "deploy": "container"}
    yield f"{target}+valkey+kubernetes", {**valkey, "deploy": "kubernetes"}
    for extra in EXTRAS:
        yield f"{target}+{extra}", {"target": target, "extras": [extra]}


VARIANTS = dict(variant for target in TARGETS for variant in renders(target))


def answers_of(variant: str) -> dict[str, Any]:
    """The answers that render `variant`. Raises KeyError for an unknown one."""
    return {"project_name": PROJECT_NAME, **VARIANTS[variant]}


def base_of(variant: str) -> str | None:
    """The variant that `variant` adds one option to, or None where it stands alone."""
    return variant.rpartition("+")[0] or None


def language_of(variant: str) -> str:
    """The language of a render named `<framework>-<language>+<option>…`."""
    return variant.partition("+")[0].rpartition("-")[2]
