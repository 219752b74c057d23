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


TARGETS = [
    Target("strands-python", "strands-python+openai-compatible", python_serve, chat_completions),
]
