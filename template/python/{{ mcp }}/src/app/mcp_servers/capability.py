"""The MCP servers as a capability: their tools, each under a unique name.

A server that is down causes only a warning. The next turn reconnects without waiting, and so does
each call of one of the server's tools.
"""

import asyncio
import json
import logging
import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property, partial
from typing import Any

from ..agent import TOOLS
from ..capability import Capability
from ..contract import Turn
from ..findings import Finding
from .adapter import names_of, to_tool
from .connection import MAX_TOOLS, Server, ServerDown
from .file import read_servers, report
from .settings import McpSettings

log = logging.getLogger(__name__)
START_SECONDS = 10  # how long a start waits for all servers
MAX_WARNINGS = 100
MAX_DECLARATION_CHARS = 20_000  # of a tool: its description and its schema
RESERVED = {"add_memory", "search_memory"}  # tools of long-term memory


class McpServers(Capability):
    """The servers of the file; does nothing if the file declares none."""

    settings: McpSettings

    def __init__(self, settings: McpSettings, before: Sequence[Capability]) -> None:
        super().__init__(settings, before)
        self._tools: list[Any] = []
        self._names = dict[tuple[str, str], str]()  # by server and tool; a name never changes
        self._is_open = False
        self._warned = set[str]()

    @cached_property
    def servers(self) -> list[Server]:
        """The servers of the file."""
        seconds = self.settings.mcp_timeout_seconds
        declared, _ = read_servers(self.settings)
        return [Server(declaration, seconds, self._name_tools) for declaration in declared]

    def check(self) -> list[Finding]:
        return read_servers(self.settings)[1]

    async def ping(self) -> list[Finding]:
        """Return a finding for each server that does not answer."""
        try:
            await self._connect(self.settings.mcp_timeout_seconds + 1)
            return [
                self._down(server)
                for server in self.servers
                if server.problem and not server.declared.problem  # `check` has already reported it
            ]
        finally:
            await self.close()

    async def open(self) -> None:
        """Connect to all servers and list their tools; one that fails causes only a warning."""
        await self._connect(START_SECONDS)

    def _down(self, server: Server) -> Finding:
        message = f"Server {server.declared.name} is down: {server.problem}."
        return report(self.settings.mcp_file, "MCP-CONNECT", message, server.declared.line)

    async def _connect(self, seconds: float) -> None:
        if not self.servers:
            return
        import mcp.client  # noqa: F401 (slow: loaded before the servers' time limit starts)

        for name in ("client", "httpx2", "mcp"):  # they log what servers send
            logging.getLogger(name).setLevel("CRITICAL")
        servers = self.servers
        tries = {asyncio.create_task(self._try(s)): s.declared.name for s in servers}
        _, late = await asyncio.wait(tries, timeout=seconds)
        self._is_open = True
        self._name_tools()
        for task in late:
            log.warning("MCP server %s has not answered yet; starting without it", tries[task])

    async def close(self) -> None:
        """Close all connections, and end all processes."""
        await asyncio.gather(*[server.close() for server in self.servers])

    def tools(self) -> list[Any]:
        """Return the tools of the servers that are up."""
        return self._tools

    def prepare(self, turn: Turn, options: dict[str, Any]) -> None:
        """Reconnect servers that are down; the turn does not wait for them."""
        for server in self.servers if self._is_open else []:
            server.retry()

    def describe(self, address: str) -> list[str]:
        """Return what the agent contacts or runs for each server, one line each."""
        lines = list[str]()
        for server in self.servers:
            state = f"down: {server.problem}" if server.problem else f"{len(server.tools)} tools"
            lines.append(f"MCP server {server.declared.name}: {server.declared.contact}, {state}")
        return lines

    async def _try(self, server: Server) -> None:
        with suppress(ServerDown):
            await server.connect()

    def _name_tools(self) -> None:
        """Name the tools of all servers: a taken name is prefixed with the server's.

        A tool keeps its name when other tools come later.
        """
        if not self._is_open:
            return
        listed = [(server, tool) for server in self.servers for tool in server.tools]
        listed.sort(key=lambda item: (item[0].declared.name, item[1].name) not in self._names)
        offered = Counter({(server, _valid_name(tool.name)) for server, tool in listed})
        times = Counter(name for _, name in offered)
        own = names_of(TOOLS) | RESERVED
        used, self._tools = set(own), []
        for server, tool in listed:
            plain, owner = _valid_name(tool.name), server.declared.name
            given = {name for (other, _), name in self._names.items() if other != owner}
            # No provider accepts an empty description.
            schema, description = tool.input_schema, tool.description or tool.name
            is_taken = plain in own | given or times[plain] > 1
            name = _valid_name(f"{owner}_{plain}") if is_taken else plain
            name = self._names.get((owner, tool.name), name)
            if not plain.strip("_"):
                what = "a tool whose name has no ASCII letter or digit is left out"
                self._warn(f"MCP server {owner}: {what}")
                continue
            if name != plain:
                what = f"the tool name {plain} is taken; this tool is named {name}"
                self._warn(f"MCP server {owner}: {what}")
            if len(self._tools) == MAX_TOOLS:
                what = f"the limit of {MAX_TOOLS} tools for all servers is reached"
                self._warn(f"MCP server {owner}: {what}; further tools are left out")
                break
            if name in used:
                self._warn(f"MCP server {owner}: two tools are {name}; one is left out")
            elif len(json.dumps(schema)) + len(description) > MAX_DECLARATION_CHARS:
                what = "its description and schema are too long"
                self._warn(f"MCP server {owner}: tool {name} is left out: {what}")
            elif not _is_valid(schema):
                self._warn(f"MCP server {owner}: tool {name} is left out: its schema is not valid")
            else:
                used.add(name)
                self._names[owner, tool.name] = name
                call = partial(server.call, tool.name)
                self._tools.append(to_tool(name, description, schema, call))

    def _warn(self, line: str) -> None:
        if line not in self._warned and len(self._warned) < MAX_WARNINGS:
            self._warned.add(line)
            log.warning(line)


def _valid_name(name: str) -> str:
    """Return a name that every provider accepts."""
    return re.sub("[^A-Za-z0-9_]", "_", name)[:64]


def _is_valid(schema: dict[str, Any]) -> bool:
    """Whether providers accept a schema: a refused one would fail every turn."""
    import jsonschema

    try:
        jsonschema.Draft7Validator.check_schema(schema)
    except (jsonschema.SchemaError, RecursionError):
        return False
    return schema.get("type") == "object"
