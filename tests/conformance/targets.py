"""The table of targets. A new render adds a row; nothing else in this suite knows a language."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Target:
    name: str
    variant: str  # what tests.installed.installed() renders and installs
    command: Callable[[Path], list[str]]  # starts the server of an installed project
    provider: Callable[[str], dict[str, str]]  # the variables that point it at a provider's origin


def python_serve(project: Path) -> list[str]:
    return [str(project / ".venv" / "bin" / "my-agent"), "serve"]


def chat_completions(origin: str) -> dict[str, str]:
    return {"MODEL": "test-model", "OPENAI_BASE_URL": f"{origin}/v1", "OPENAI_API_KEY": "test"}


def messages(origin: str) -> dict[str, str]:
    return {"MODEL": "test-model", "ANTHROPIC_BASE_URL": origin, "ANTHROPIC_API_KEY": "test"}


def converse(origin: str) -> dict[str, str]:
    keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    place = {"AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL_BEDROCK_RUNTIME": origin}
    return {"MODEL": "test-model", **keys, **place}


TARGETS = [
    Target("strands-python", "strands-python+openai-compatible", python_serve, chat_completions),
    Target("vercel-python", "vercel-python+openai-compatible", python_serve, chat_completions),
]

# Every other vendor's client, for the scenarios that depend on one.
VENDOR_TARGETS = [
    Target("strands-python-anthropic", "strands-python+anthropic", python_serve, messages),
    Target("strands-python-bedrock", "strands-python", python_serve, converse),
]
