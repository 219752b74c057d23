"""The settings of long-term memory."""

from dataclasses import dataclass

from ..collections.settings import DeclarationSettings
from ..settings import integer, string

PROJECT_ID = "[a-z0-9][a-z0-9_-]{0,63}"


@dataclass(frozen=True)
class MemorySettings(DeclarationSettings):
    """The limits of recall, the tool that adds memories, and the project."""

    recall_timeout_seconds: int = integer(2, 1, 60)
    recall_overfetch: int = integer(4, 1, 100)
    add_memory_tool: int = integer(0, 0, 1)
    # The values that AgentCore Memory allows for a namespace variable.
    project_id: str | None = string(PROJECT_ID, f"text that matches {PROJECT_ID}", None)
