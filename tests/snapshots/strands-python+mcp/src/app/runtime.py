"""What the turns of one process share: the model and the sessions, which live in memory."""

import asyncio
from typing import Any

from .contract import TurnRequest
from .mcp_servers.file import read_servers
from .mcp_servers.wiring import McpServers, call_servers
from .model import build_model, check_model, model_endpoint
from .session_store import InProcess
from .sessions import Sessions
from .settings import Settings, without_password


class Runtime:
    """The model, the sessions, and what the commands report about them."""

    actor_required = False  # whether every caller must send an actor id
    is_waiting = False  # whether data of a committed turn is still to be written
    retention_notice = "Nothing was kept: sessions live in this process."

    def __init__(self, settings: Settings) -> None:
        self.settings, self.model = settings, build_model(settings)
        self.sessions = Sessions(settings, InProcess(settings))
        self.mcp_servers = McpServers(settings)

    @staticmethod
    def check(settings: Settings, connect: bool = False) -> list[dict[str, Any]]:
        """Return the findings about what the settings and .mcp.json name.

        With `connect`, each server is called too.
        """
        findings = check_model(settings) + read_servers(settings)[1]
        if connect and not any(one["severity"] == "error" for one in findings):
            findings += asyncio.run(call_servers(settings))
        return findings

    def describe_endpoints(self) -> list[str]:
        """Return what this process will contact, one line each, without passwords."""
        model = self.settings.model
        where = "nothing" if model == "offline" else without_password(model_endpoint(self.settings))
        lines = [f"Model: {model}, contacts {where}", "Sessions: in this process"]
        return lines + self.mcp_servers.describe_endpoints()

    def agent_options(self, request: TurnRequest) -> dict[str, Any]:
        """Return further arguments for the agent of one turn."""
        return self.mcp_servers.add_tools({})

    def record(self, request: TurnRequest, messages: list[Any]) -> None:
        """Pass on the messages of a committed turn."""

    async def open(self) -> None:
        """Connect; raises AgentError for what cannot work."""
        await self.mcp_servers.open()

    async def close(self) -> None:
        """Write what is still to be written, and disconnect."""
        await self.mcp_servers.close()
