"""The MCP servers as a capability: their tools, each under a unique name.

A server that is down causes only a warning. The next turn reconnects in the background; a call of
one of its tools reconnects first.
"""

import asyncio
import logging
import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property, partial
from typing import Any

from ..capability import Capability, Runtime
from ..contract import Turn
from ..findings import Finding
from ..modules import LoadModules, tool_name
from ..tool_schemas import problems_of
from .adapter import to_tool
from .connection import Server, ServerDown, Tool
from .file import read_servers, report
from .schemas import RepairedTool, valid_name, with_hash
from .settings import McpSettings

log = logging.getLogger(__name__)
START_SECONDS = 10  # time limit of a start, for all servers
MAX_TOOLS = 128  # limit of OpenAI; includes the agent's tools
MAX_WARNINGS = 100
RESERVED = {"add_memory", "search_memory"}  # tools of long-term memory


class McpServers(Capability):
    """The servers of the file; does nothing if the file declares none."""

    settings: McpSettings

    def __init__(
        self, settings: McpSettings, before: Sequence[Capability], load: LoadModules
    ) -> None:
        super().__init__(settings, before, load)
        self._tools: list[Any] = []
        self._names = dict[tuple[str, str], str]()  # by server and tool, for the listed tools
        self._counts = dict[str, str]()  # by server: numbers of listed and offered tools
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
            log.setLevel(logging.INFO)  # prints the number of tools of each server
            await self._connect(self.settings.mcp_timeout_seconds + 1)
            return [
                self._down(server)
                for server in self.servers
                if server.problem and not server.declared.problem  # `check` has already reported it
            ]
        finally:
            await self.close()

    async def open(self, runtime: Runtime) -> None:
        """Connect to all servers and list their tools; one that fails causes only a warning."""
        await self._connect(START_SECONDS)

    def _down(self, server: Server) -> Finding:
        message = f"Server {server.declared.name} is down: {server.problem}."
        return report(self.settings.mcp_file, "MCP-CONNECT", message, server.declared.line)

    async def _connect(self, seconds: float) -> None:
        if not self.servers:
            return
        import mcp.client  # noqa: F401 (slow: loaded before the servers' time limit starts)

        for name in ("client", "httpx2", "mcp"):  # these loggers print messages of servers
            logging.getLogger(name).setLevel("CRITICAL")
        servers = self.servers
        attempts = {asyncio.create_task(self._try(s)): s.declared.name for s in servers}
        _, late = await asyncio.wait(attempts, timeout=seconds)
        self._is_open = True
        self._name_tools()
        for task in late:
            log.warning("MCP server %s has not answered yet; starting without it", attempts[task])

    async def close(self) -> None:
        """Close all connections and terminate all processes."""
        await asyncio.gather(*[server.close() for server in self.servers])

    def tools(self) -> list[Any]:
        """Return the tools of the servers that are up."""
        return self._tools

    def prepare(self, turn: Turn, options: dict[str, Any]) -> None:
        """Reconnect servers that are down; the turn does not wait for them."""
        for server in self.servers if self._is_open else []:
            server.retry()

    def describe(self, address: str) -> list[str]:
        """Return a line for each server: the address or command that the agent uses."""
        lines = list[str]()
        for server in self.servers:
            name = server.declared.name
            state = self._counts.get(name, "not connected")
            if server.problem:
                state = f"down: {server.problem}"
            lines.append(f"MCP server {name}: {server.declared.contact}, {state}")
        return lines

    async def _try(self, server: Server) -> None:
        with suppress(ServerDown):
            await server.connect()

    def _name_tools(self) -> None:
        """Offer the tools of all servers, in the order of the file, each under a unique name.

        The file decides which tools are offered, not the time at which a server answers. A tool
        keeps its name when other tools come later.
        """
        if not self._is_open:
            return
        offered = self._select()
        self._name(offered)
        self._tools = []
        for server, tool, repaired in offered:
            name = self._names[server.declared.name, tool.name]
            call = partial(_call, server, tool.name, repaired)
            self._tools.append(to_tool(name, repaired.description, repaired.schema, call))
        for server in self.servers:
            name = server.declared.name
            count = sum(it is server for it, _, _ in offered)
            state = f"lists {len(server.tools)} tools, {count} are offered"
            if server.tools and state != self._counts.get(name):
                log.info("MCP server %s: %s", name, state)
            self._counts[name] = state

    def _own_names(self) -> set[str]:
        """Return the names that tools of servers cannot have."""
        return {tool_name(tool) for tool in self.load().agent.TOOLS} | RESERVED

    def _select(self) -> list[tuple[Server, Tool, RepairedTool]]:
        """Return the tools to offer: at most MAX_TOOLS, including the agent's."""
        room = MAX_TOOLS - len(self._own_names())
        offered = list[tuple[Server, Tool, RepairedTool]]()
        for server in self.servers:
            owner = server.declared.name
            known = set[str]()
            for tool in server.tools:
                name = valid_name(tool.name)
                repaired = tool.repaired if len(offered) < room else None
                if repaired is None:
                    problem = f"the limit of {MAX_TOOLS} tools, including the agent's, is reached"
                    self._warn(f"MCP server {owner}: {problem}; further tools are left out")
                    break
                if not re.search("[A-Za-z0-9]", tool.name):
                    problem = "a tool whose name has no ASCII letter or digit is left out"
                    self._warn(f"MCP server {owner}: {problem}")
                elif tool.name in known:
                    self._warn(
                        f"MCP server {owner}: two tools are named {name}; the second is left out"
                    )
                elif isinstance(repaired, Exception):
                    self._warn(f"MCP server {owner}: tool {name} is left out: {repaired}")
                elif problem := _problem_of(name, repaired):
                    self._warn(f"MCP server {owner}: tool {name} is left out: {problem}")
                else:
                    known.add(tool.name)
                    offered.append((server, tool, repaired))
        return offered

    def _name(self, offered: list[tuple[Server, Tool, RepairedTool]]) -> None:
        """Name new tools; prefix a taken name with the server's name."""
        current = {(s.declared.name, tool.name) for s in self.servers for tool in s.tools}
        self._names = {key: name for key, name in self._names.items() if key in current}
        listed = {(owner, _normalized(name)) for owner, name in current}
        times = Counter(name for _, name in listed)
        reserved = {_normalized(name) for name in self._own_names()}
        # Tools with valid names come first, so that they keep their names.
        for server, tool, _ in sorted(offered, key=lambda it: it[1].name != valid_name(it[1].name)):
            owner = server.declared.name
            plain = valid_name(tool.name)
            if (owner, tool.name) in self._names:
                continue
            other_servers = {
                _normalized(name) for (it, _), name in self._names.items() if it != owner
            }
            used = reserved | {_normalized(name) for name in self._names.values()}
            is_taken = (
                _normalized(plain) in reserved | other_servers or times[_normalized(plain)] > 1
            )
            name = valid_name(f"{owner}_{plain}") if is_taken else plain
            if _normalized(name) in used:
                name = with_hash(name, f"{owner} {tool.name}")
            self._names[owner, tool.name] = name
            if name != plain:
                problem = f"the tool name {plain} is taken; this tool is named {name}"
                self._warn(f"MCP server {owner}: {problem}")

    def _warn(self, line: str) -> None:
        if line not in self._warned and len(self._warned) < MAX_WARNINGS:
            self._warned.add(line)
            log.warning(line)


async def _call(
    server: Server, name: str, repaired: RepairedTool, arguments: dict[str, Any]
) -> str:
    return await server.call(name, repaired.restore(arguments))


def _normalized(name: str) -> str:
    """Return a name as Strands compares it: `a-b` and `a_b` cannot both be registered."""
    return valid_name(name).replace("-", "_")


def _problem_of(name: str, repaired: RepairedTool) -> str:
    """Return the reason why providers reject a tool, or an empty string."""
    import jsonschema

    try:
        jsonschema.Draft202012Validator.check_schema(repaired.schema)
        return next(iter(problems_of(name, repaired.description, repaired.schema)), "")
    except Exception:  # noqa: BLE001 (the other tools must stay available)
        return "its schema is not valid"
