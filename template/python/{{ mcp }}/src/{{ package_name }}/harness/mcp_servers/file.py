"""The file MCP_FILE, .mcp.json: the MCP servers that the agent uses, and how it reaches each."""

import json
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..findings import diagnostic
from ..settings import is_plain_http, without_password
from .settings import McpSettings

NAME = "[A-Za-z0-9_][A-Za-z0-9_ ./@-]{0,63}"
VARIABLE = r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}"
# The fields of each type of server, and their formats.
STRING = "a string that is not empty"
LIST = "a list of strings"
OBJECT = "an object of strings"
FIELDS = {
    "stdio": {"type": STRING, "command": STRING, "args": LIST, "env": OBJECT, "cwd": STRING},
    "http": {"type": STRING, "url": "an http address", "headers": OBJECT},
}
REQUIRED = {"stdio": "command", "http": "url"}
# The ids of findings, and their severity: a server that is down does not stop the agent.
FINDINGS = {
    "MCP-FILE": "error",  # invalid JSON, or no object "mcpServers"
    "MCP-SERVER": "warning",  # the name or the type of a server
    "MCP-FIELD": "warning",  # missing or invalid
    "MCP-IGNORED": "warning",  # a field for other agents
    "MCP-VARIABLE": "warning",  # not set, or not a variable
    "MCP-COMMAND": "warning",  # not found
    "MCP-IMAGE": "warning",  # not found in the container
    "MCP-PLAIN-HTTP": "warning",  # headers without encryption
    "MCP-CONNECT": "warning",  # no answer, with --connect
}
FindingRow = tuple[str, str, int]  # id, message and line


@dataclass(frozen=True)
class Declaration:
    """A server as the file declares it, with the values of its variables."""

    name: str
    line: int
    problem: str = ""  # the reason why it stays down
    command: str = ""
    args: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    cwd: str | None = None
    url: str = ""
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def contact(self) -> str:
        """The contacted address or the command, without passwords and arguments."""
        address = without_password(self.url).partition("?")[0]
        return f"contacts {address}" if address else f"runs {self.command or 'nothing'}"

    @property
    def missing(self) -> str:
        """The folder or the command that was not found."""
        if self.cwd and not Path(self.cwd).is_dir():
            return f"the folder {self.cwd}"
        folder = self.cwd if self.cwd and "/" in self.command else ""
        command = os.path.join(folder, self.command)
        is_found = self.url or shutil.which(command, path=self.env.get("PATH"))
        return "" if is_found else f"the command {self.command}"


def read_servers(settings: McpSettings) -> tuple[list[Declaration], list[dict[str, Any]]]:
    """Read the file; return the servers that it declares, and the findings."""
    servers = list[Declaration]()
    findings = list[FindingRow]()
    file = settings.mcp_file
    try:
        text = Path(file).read_text("utf-8-sig")
        data = json.loads(text)
        declared = data.get("mcpServers") if isinstance(data, dict) else None
    except (OSError, ValueError, RecursionError) as error:
        if isinstance(error, FileNotFoundError) and file == McpSettings.mcp_file:
            return [], []
        problem = "There is no such file, or it cannot be read."
        line = 0
        if isinstance(error, json.JSONDecodeError):
            problem = f"The file is not valid JSON: {error.msg}."
            line = error.lineno
        return [], [report(file, "MCP-FILE", problem, line)]
    if not isinstance(declared, dict):
        return [], [report(file, "MCP-FILE", 'Write {"mcpServers": {"NAME": {…}}}.', 1)]
    for key in data.keys() - {"mcpServers"}:
        message = f"Field {key!r} is ignored: only mcpServers is supported."
        findings.append(("MCP-IGNORED", message, _line(text, key)))
    for name, server in declared.items():
        if isinstance(server, dict) and server.get("disabled") is True:
            continue
        line = _line(text, "mcpServers", name)
        if problems := list(_check(name, server)):
            label = name if re.fullmatch(NAME, name) else json.dumps(name[:64], ensure_ascii=False)
            servers.append(Declaration(label, line, problems[0][2]))
            for id, key, problem in problems:
                message = f"Server {label} stays down: {problem}."
                findings.append((id, message, _line(text, "mcpServers", name, *key)))
        else:
            declaration, unknown = _declare(name, line, server)
            servers.append(declaration)
            findings += _check_values(text, declaration, server, unknown)
    return servers, [report(file, *finding) for finding in findings]


def report(file: str, id: str, message: str, line: int) -> dict[str, Any]:
    """Return a finding about the file."""
    return diagnostic(id, message, FINDINGS[id], file, line)


def _check(name: str, server: Any) -> Iterator[tuple[str, list[str], str]]:
    """Yield findings about an unusable server: the id, the key, and the reason."""
    if not re.fullmatch(NAME, name):
        yield "MCP-SERVER", [], f"its name must match {NAME}"
    if not isinstance(server, dict):
        yield "MCP-SERVER", [], "it must be an object"
        return
    fields = FIELDS.get(type := _type_of(server))
    if fields is None:
        yield "MCP-SERVER", ["type"], "its type must be stdio or http"
        return
    for key, form in fields.items():
        if key in server and not _has_form(server[key], form):
            yield "MCP-FIELD", [key], f"{key} must be {form}"
    if REQUIRED[type] not in server:
        yield "MCP-FIELD", [], f"it needs the field {REQUIRED[type]}"


def _type_of(server: dict[str, Any]) -> str:
    """Return the type of a server; other agents write streamable-http or streamableHttp."""
    type = str(server.get("type", "http" if "url" in server else "stdio"))
    return "http" if re.fullmatch("(?i)streamable[-_]?http", type) else type


def _has_form(value: Any, form: str) -> bool:
    if form == LIST:
        return isinstance(value, list) and all(isinstance(item, str) for item in value)
    if form == OBJECT:
        return isinstance(value, dict) and all(isinstance(item, str) for item in value.values())
    pattern = "." if form == STRING else r"https?://|\$\{"
    return isinstance(value, str) and re.match(pattern, value) is not None


def _declare(name: str, line: int, server: dict[str, Any]) -> tuple[Declaration, dict[str, str]]:
    """Return a server with the values of its variables, and the reasons for missing values."""
    unknown = dict[str, str]()

    def expand(reference: re.Match[str]) -> str:
        known = re.fullmatch(VARIABLE, reference[0])
        value = os.environ.get(known[1], "").strip() if known else ""
        if known is None:
            unknown[reference[0]] = f"{reference[0]} is not an environment variable"
        elif not value and known[2] is None:
            unknown[reference[0]] = f"{known[1]} is not set"
        return value or (known and known[2]) or ""

    def expand_all(value: Any) -> Any:
        if isinstance(value, str):
            return re.sub(r"\$\{[^}]*\}?", expand, value)
        if isinstance(value, list):
            return [expand_all(item) for item in value]
        return {key: expand_all(item) for key, item in value.items()}

    fields = FIELDS[_type_of(server)].keys() - {"type"}
    values = {key: expand_all(server[key]) for key in server if key in fields}
    return Declaration(name, line, next(iter(unknown.values()), ""), **values), unknown


def _check_values(
    text: str, declared: Declaration, server: dict[str, Any], unknown: dict[str, str]
) -> Iterator[FindingRow]:
    """Yield findings about an unreachable server and ignored fields."""
    place = ("mcpServers", declared.name)
    name = declared.name
    known = FIELDS[_type_of(server)]
    for key in server:
        if key not in known and key != "disabled":
            message = f"Field {key!r} is ignored: supported fields are {', '.join(known)}."
            yield "MCP-IGNORED", message, _line(text, *place, key)
    for variable, reason in unknown.items():
        message = f"Server {name} stays down: {reason}."
        yield "MCP-VARIABLE", message, _line(text, *place, near=variable)
    if not declared.problem and declared.missing:
        message = f"{declared.missing.replace('the', 'The', 1)} of server {name} was not found."
        yield "MCP-COMMAND", message, _line(text, *place, "command")
    if Path(declared.command).name in {"npx", "uvx"} and Path("Dockerfile").exists():
        message = f"The image cannot run {declared.command} for server {name}: see docs/mcp.md."
        yield "MCP-IMAGE", message, _line(text, *place, "command")
    if declared.headers and is_plain_http(declared.url):
        message = f"The headers of server {name} travel over plain http: use https."
        yield "MCP-PLAIN-HTTP", message, _line(text, *place, "url")


def _line(text: str, *keys: str, near: str = "") -> int:
    """Find `keys` in order; return the line of the last key, or of the text `near` after it."""
    at = 0
    for key in keys:
        quoted = re.escape(json.dumps(key, ensure_ascii=False))
        if match := re.compile(rf"{quoted}\s*:").search(text, at):
            at = match.start()
    return text.count("\n", 0, max(text.find(near, at), 0)) + 1
