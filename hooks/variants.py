"""The renders that are reviewed, tested and installed: a name and the answers that make it."""

PROJECT_NAME = "my-agent"

# `<base>+<option>` is `<base>` with another answer; its snapshot holds only what that changes.
VARIANTS: dict[str, dict[str, str]] = {
    "strands-python": {"target": "strands-python"},
    "strands-python+anthropic": {"target": "strands-python", "model": "anthropic"},
    "strands-python+openai": {"target": "strands-python", "model": "openai"},
    "strands-python+openai-compatible": {"target": "strands-python", "model": "openai-compatible"},
    "strands-python+valkey": {"target": "strands-python", "session_store": "valkey"},
    "strands-python+valkey+agentcore": {
        "target": "strands-python",
        "session_store": "valkey",
        "long_term_memory": "agentcore",
    },
    "strands-python+valkey+custom": {"target": "strands-python", "session_store": "custom"},
    "strands-python+valkey+s3": {"target": "strands-python", "session_store": "s3"},
    "strands-typescript": {"target": "strands-typescript"},
    "strands-typescript+anthropic": {"target": "strands-typescript", "model": "anthropic"},
    "strands-typescript+openai": {"target": "strands-typescript", "model": "openai"},
    "strands-typescript+openai-compatible": {
        "target": "strands-typescript",
        "model": "openai-compatible",
    },
    "strands-typescript+valkey": {"target": "strands-typescript", "session_store": "valkey"},
    "strands-typescript+valkey+agentcore": {
        "target": "strands-typescript",
        "session_store": "valkey",
        "long_term_memory": "agentcore",
    },
    "vercel-python": {"target": "vercel-python"},
    "vercel-python+anthropic": {"target": "vercel-python", "model": "anthropic"},
    "vercel-python+bedrock": {"target": "vercel-python", "model": "bedrock"},
    "vercel-python+gateway": {"target": "vercel-python", "model": "gateway"},
    "vercel-python+openai-compatible": {"target": "vercel-python", "model": "openai-compatible"},
    "vercel-python+valkey": {"target": "vercel-python", "session_store": "valkey"},
    "vercel-python+valkey+agentcore": {
        "target": "vercel-python",
        "session_store": "valkey",
        "long_term_memory": "agentcore",
    },
    "vercel-typescript": {"target": "vercel-typescript"},
    "vercel-typescript+anthropic": {"target": "vercel-typescript", "model": "anthropic"},
    "vercel-typescript+bedrock": {"target": "vercel-typescript", "model": "bedrock"},
    "vercel-typescript+gateway": {"target": "vercel-typescript", "model": "gateway"},
    "vercel-typescript+openai-compatible": {
        "target": "vercel-typescript",
        "model": "openai-compatible",
    },
    "vercel-typescript+valkey": {"target": "vercel-typescript", "session_store": "valkey"},
    "vercel-typescript+valkey+agentcore": {
        "target": "vercel-typescript",
        "session_store": "valkey",
        "long_term_memory": "agentcore",
    },
}


def answers_of(variant: str) -> dict[str, str]:
    """The answers that render `variant`. Raises KeyError for an unknown one."""
    return {"project_name": PROJECT_NAME, **VARIANTS[variant]}


def base_of(variant: str) -> str | None:
    """The variant that `variant` adds one option to, or None where it stands alone."""
    return variant.rpartition("+")[0] or None
