"""The MCP servers as the runtime uses them: their tools, each under a name of its own.

A server that is down is a warning. It is tried again by the next turn, which does not wait for it,
and by each call of one of its tools.
"""

import asyncio
import json
import logging
import re
from collections import Counter
from contextlib import suppress
from functools import partial
from typing import Any

from ..agent import TOOLS
from ..settings import Settings
from .adapter import names_of, to_tool
from .connection import MAX_TOOLS, Server, ServerDown
from .file import read_servers, report

log = logging.getLogger(__name__)
START_SECONDS = 10  # how long a start waits for all servers
MAX_DECLARATION_CHARS = 20_000  # of a tool: its description and its schema
OF_MEMORY = {"add_memory", "search_memory"}


class McpServers:
    """The servers of the file; without one it does nothing."""

    def __init__(self, settings: Settings) -> None:
        seconds = settings.mcp_timeout_seconds
        declared, _ = read_servers(settings)
        self.servers = [Server(one, seconds, self._arrange) for one in declared]
        self._tools: list[Any] = []
        self._names = dict[tuple[str, str], str]()  # by server and tool: they stay
        self._is_open = False
        self._warned = set[str]()

    async def open(self, seconds: float = START_SECONDS) -> None:
        """Connect to all servers and list their tools; one that fails is a warning."""
        if not self.servers:
            return
        import mcp.client  # noqa: F401 (slow, and none of the time that servers have)

        for name in ("client", "httpx2", "mcp"):  # they log what servers send
            logging.getLogger(name).setLevel("CRITICAL")
        tries = {asyncio.create_task(self._try(one)): one.declared.name for one in self.servers}
        _, late = await asyncio.wait(tries, timeout=seconds)
        self._is_open = True
        self._arrange()
        for one in late:
            log.warning("MCP server %s: no answer yet; the start goes on", tries[one])

    async def close(self) -> None:
        """Close all connections, and end all processes."""
        await asyncio.gather(*[server.close() for server in self.servers])

    def add_tools(self, options: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments for an agent with the tools of the servers among them."""
        for server in self.servers if self._is_open else []:
            server.retry()
        return options | {"tools": [*options.get("tools", TOOLS), *self._tools]}

    def describe_endpoints(self) -> list[str]:
        """Return what each server contacts or runs, one line each."""
        lines = list[str]()
        for server in self.servers:
            state = f"down: {server.problem}" if server.problem else f"{len(server.tools)} tools"
            lines.append(f"MCP server {server.declared.name}: {server.declared.contact}, {state}")
        return lines

    async def _try(self, server: Server) -> None:
        with suppress(ServerDown):
            await server.connect()

    def _arrange(self) -> None:
        """Name the tools of all servers: a name that is taken gets its server's in front.

        A tool that has a name keeps it: what comes later takes none away.
        """
        if not self._is_open:
            return
        listed = [(server, tool) for server in self.servers for tool in server.tools]
        listed.sort(key=lambda it: (it[0].declared.name, it[1].name) not in self._names)
        offered = Counter({(server, _clean(tool.name)) for server, tool in listed})
        times = Counter(name for _, name in offered)
        own = names_of(TOOLS) | OF_MEMORY
        used, self._tools = set(own), []
        for server, tool in listed:
            plain, who = _clean(tool.name), server.declared.name
            given = {name for (other, _), name in self._names.items() if other != who}
            # No provider takes an empty description.
            schema, description = tool.input_schema, tool.description or tool.name
            is_taken = plain in own | given or times[plain] > 1
            name = _clean(f"{who}_{plain}") if is_taken else plain
            name = self._names.get((who, tool.name), name)
            if not plain.strip("_"):
                self._warn(f"MCP server {who}: a tool without a name is left out")
                continue
            if name != plain:
                self._warn(f"MCP server {who}: {plain} is taken, so it is {name}")
            if len(self._tools) == MAX_TOOLS:
                self._warn(f"MCP server {who}: its tools beyond {MAX_TOOLS} are left out")
                break
            if name in used:
                self._warn(f"MCP server {who}: it has two tools {name}; the second is left out")
            elif len(json.dumps(schema)) + len(description) > MAX_DECLARATION_CHARS:
                self._warn(f"MCP server {who}: tool {name} is left out: its schema is too long")
            elif not _is_valid(schema):
                self._warn(f"MCP server {who}: tool {name} is left out: its schema is not valid")
            else:
                used.add(name)
                self._names[who, tool.name] = name
                call = partial(server.call, tool.name)
                self._tools.append(to_tool(name, description, schema, call))

    def _warn(self, line: str) -> None:
        if line not in self._warned and len(self._warned) < MAX_TOOLS:
            self._warned.add(line)
            log.warning(line)


async def call_servers(settings: Settings) -> list[dict[str, Any]]:
    """Return a finding for each server that does not answer."""
    servers, findings = McpServers(settings), list[dict[str, Any]]()
    try:
        await servers.open(settings.mcp_timeout_seconds + 1)
        for server in servers.servers:
            if server.problem and not server.declared.problem:  # that `check` has found
                message = f"Server {server.declared.name} is down: {server.problem}."
                line = server.declared.line
                findings.append(report(settings.mcp_file, "MCP-CONNECT", message, line))
    finally:
        await servers.close()
    return findings


def _clean(name: str) -> str:
    """Return a name that every provider takes."""
    return re.sub("[^A-Za-z0-9_]", "_", name)[:64]


def _is_valid(schema: dict[str, Any]) -> bool:
    """Whether providers take a schema: one that they refuse would fail every turn."""
    import jsonschema  # type: ignore[import-untyped]

    try:
        jsonschema.Draft7Validator.check_schema(schema)
    except (jsonschema.SchemaError, RecursionError):
        return False
    return schema.get("type") == "object"
