"""The settings of MCP servers."""

from dataclasses import dataclass

from ..settings import CoreSettings, integer


@dataclass(frozen=True)
class McpSettings(CoreSettings):
    """The file that declares the servers, and the time limit of a call."""

    mcp_file: str = ".mcp.json"
    mcp_timeout_seconds: int = integer(30, 1, 3600)
