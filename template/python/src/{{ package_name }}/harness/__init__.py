"""The harness of the agent: it comes from the template, and `copier update` merges it.

Edits here can conflict with updates. Put your own code in the parent folder.
"""

from .app import AgentApp
from .capability import Capability, Runtime
from .commands import make_cli
from .contract import (
    AgentError,
    Data,
    File,
    Reasoning,
    Source,
    ToolCall,
    ToolResult,
    Turn,
    TurnRequest,
    TurnResult,
    Usage,
    current_turn,
)
from .findings import Finding, diagnostic
from .modules import Handler, Modules, Route
from .sessions.sessions import SessionInfo, SessionTurn
from .settings import (
    CoreSettings,
    boolean,
    integer,
    read_settings,
    secret,
    string,
    string_list,
)

__all__ = [
    "AgentApp",
    "AgentError",
    "Capability",
    "CoreSettings",
    "Data",
    "File",
    "Finding",
    "Handler",
    "Modules",
    "Reasoning",
    "Route",
    "Runtime",
    "SessionInfo",
    "SessionTurn",
    "Source",
    "ToolCall",
    "ToolResult",
    "Turn",
    "TurnRequest",
    "TurnResult",
    "Usage",
    "boolean",
    "current_turn",
    "diagnostic",
    "integer",
    "make_cli",
    "read_settings",
    "secret",
    "string",
    "string_list",
]
