"""The variants: named sets of answers that are rendered for reviews and tests."""

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
    "effects",
    "compaction",
    "fallback",
    "evals",
    "ai-sdk-ui",
    "ui",
    "background",
)
# Without the default model of each framework, which the plain render has.
MODELS = {
    "strands": ("anthropic", "openai", "openai-compatible"),
    "vercel": ("anthropic", "bedrock", "gateway", "openai-compatible"),
}


def renders(target: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the variants of a target: `<base>+<option>` is `<base>` with another answer."""
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
    """Return the answers of `variant`. Raises KeyError for an unknown variant."""
    return {"project_name": PROJECT_NAME, **VARIANTS[variant]}


def base_of(variant: str) -> str | None:
    """Return the variant to which `variant` adds an option, or None for a plain render."""
    return variant.rpartition("+")[0] or None


def language_of(variant: str) -> str:
    """Return the language of a variant named `<framework>-<language>+<option>…`."""
    return variant.partition("+")[0].rpartition("-")[2]
