"""The file .mcp.json: the MCP servers that the agent uses, and how it reaches each."""

import json
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..settings import diagnostic, is_plain_http, without_password

FILE = ".mcp.json"
NAME = "[A-Za-z0-9_-]{1,32}"
VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
# The fields of a server by its type, and the form of each.
STRING, LIST, OBJECT = "a string that is not empty", "a list of strings", "an object of strings"
FIELDS = {
    "stdio": {"type": STRING, "command": STRING, "args": LIST, "env": OBJECT},
    "http": {"type": STRING, "url": "an http address", "headers": OBJECT},
}
REQUIRED = {"stdio": "command", "http": "url"}
# The ids of findings, and their severity: a server that is down does not stop the agent.
FINDINGS = {
    "MCP-FILE": "error",  # no JSON, or not {"mcpServers": {…}}
    "MCP-SERVER": "error",  # the name or the type of a server
    "MCP-FIELD": "error",  # unknown, missing, or of another form
    "MCP-VARIABLE": "warning",  # not set
    "MCP-COMMAND": "warning",  # not found
    "MCP-PLAIN-HTTP": "warning",  # headers that others can read
    "MCP-CONNECT": "warning",  # no answer, with --connect
}


@dataclass(frozen=True)
class Declaration:
    """A server as the file declares it; its variables have their values, or stand in `unset`."""

    name: str
    line: int
    command: str = ""
    args: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    url: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    unset: tuple[str, ...] = ()

    @property
    def contact(self) -> str:
        """What the agent contacts or runs, without passwords and arguments."""
        address = without_password(self.url).partition("?")[0]
        return f"contacts {address}" if address else f"runs {self.command}"

    @property
    def is_found(self) -> bool:
        """Whether there is such a command."""
        path = self.env.get("PATH")
        return bool(self.url) or shutil.which(self.command, path=path) is not None


def read_servers() -> tuple[list[Declaration], list[dict[str, Any]]]:
    """Read the file; return the servers that it declares without an error, and the findings."""
    servers, findings = list[Declaration](), list[dict[str, Any]]()
    try:
        text = Path(FILE).read_text("utf-8-sig")
        data = json.loads(text)
        declared = data.get("mcpServers") if isinstance(data, dict) else None
    except FileNotFoundError:
        return [], []
    except (OSError, ValueError, RecursionError) as error:
        what = error.msg if isinstance(error, json.JSONDecodeError) else "it cannot be read"
        line = getattr(error, "lineno", 0)
        return [], [_finding("MCP-FILE", f"This is not valid JSON: {what}.", line)]
    if not isinstance(declared, dict):
        return [], [_finding("MCP-FILE", 'Write {"mcpServers": {"NAME": {…}}}.', 1)]
    for key in data.keys() - {"mcpServers"}:
        message = f"Field {key!r} is unknown: allowed is mcpServers."
        findings.append(_finding("MCP-FIELD", message, _line(text, key)))
    for name, server in declared.items():
        found = list(_check(text, name, server))
        if not found:
            line = _line(text, "mcpServers", name)
            servers.append(_declare(name, line, server))
            found += _check_values(text, servers[-1])
        findings += found
    return servers, findings


def _check(text: str, name: str, server: Any) -> Iterator[dict[str, Any]]:
    """Yield what is wrong with the form of a server."""
    place = ("mcpServers", name)
    if not re.fullmatch(NAME, name):
        message = f"The server name {name[:80]!r} must match {NAME}."
        yield _finding("MCP-SERVER", message, _line(text, *place))
    if not isinstance(server, dict):
        yield _finding("MCP-SERVER", f"Server {name} must be an object.", _line(text, *place))
        return
    type = server.get("type", "http" if "url" in server else "stdio")
    if not isinstance(type, str) or type not in FIELDS:
        message = f"Server {name} has another type: allowed are stdio and http."
        yield _finding("MCP-SERVER", message, _line(text, *place, "type"))
        return
    for key, value in server.items():
        form = FIELDS[type].get(key)
        if form is None:
            message = f"Field {key!r} is unknown: allowed are {', '.join(FIELDS[type])}."
            yield _finding("MCP-FIELD", message, _line(text, *place, key))
        elif not _has_form(value, form):
            yield _finding("MCP-FIELD", f"{key} must be {form}.", _line(text, *place, key))
    if REQUIRED[type] not in server:
        message = f"Server {name} needs the field {REQUIRED[type]}."
        yield _finding("MCP-FIELD", message, _line(text, *place))


def _has_form(value: Any, form: str) -> bool:
    if form == LIST:
        return isinstance(value, list) and all(isinstance(one, str) for one in value)
    if form == OBJECT:
        return isinstance(value, dict) and all(isinstance(one, str) for one in value.values())
    pattern = "." if form == STRING else r"https?://|\$\{"
    return isinstance(value, str) and re.match(pattern, value) is not None


def _declare(name: str, line: int, server: dict[str, Any]) -> Declaration:
    """Return a server with the values of its variables."""
    unset = list[str]()

    def expand(text: str) -> str:
        unset.extend(one for one in VARIABLE.findall(text) if not os.environ.get(one, "").strip())
        return VARIABLE.sub(lambda match: os.environ.get(match[1], "").strip(), text)

    values = dict[str, Any]()
    for key, value in server.items():
        if isinstance(value, str):
            values[key] = expand(value)
        elif isinstance(value, list):
            values[key] = [expand(one) for one in value]
        else:
            values[key] = {one: expand(text) for one, text in value.items()}
    values.pop("type", None)
    return Declaration(name, line, **values, unset=tuple(dict.fromkeys(unset)))


def _check_values(text: str, server: Declaration) -> Iterator[dict[str, Any]]:
    """Yield what keeps a server from being reached."""
    place = ("mcpServers", server.name)
    for name in server.unset:
        message = f"{name} is not set: server {server.name} stays down until it is."
        yield _finding("MCP-VARIABLE", message, _line(text, *place, near=f"${{{name}}}"))
    if not server.unset and not server.is_found:
        message = f"The command {server.command} of server {server.name} was not found."
        yield _finding("MCP-COMMAND", message, _line(text, *place, "command"))
    if server.headers and is_plain_http(server.url):
        message = f"The headers of server {server.name} travel over plain http: use https."
        yield _finding("MCP-PLAIN-HTTP", message, _line(text, *place, "url"))


def _finding(id: str, message: str, line: int) -> dict[str, Any]:
    return diagnostic(id, message, FINDINGS[id], FILE, line)


def _line(text: str, *keys: str, near: str = "") -> int:
    """Return the line of a key behind the keys above it, and of the text `near` behind that."""
    at = 0
    for key in keys:
        quoted = re.escape(json.dumps(key, ensure_ascii=False))
        if found := re.compile(rf"{quoted}\s*:").search(text, at):
            at = found.start()
    return text.count("\n", 0, max(text.find(near, at), 0)) + 1
