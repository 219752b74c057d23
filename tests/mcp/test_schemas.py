"""Tools as real MCP servers declare them, and a provider that refuses what vendors refuse."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.chat import Chat
from tests.conformance.provider import Provider
from tests.conformance.refusals import refusals
from tests.conformance.server import Server
from tests.conformance.steps import Call, Refuse
from tests.conformance.targets import (
    SHARED,
    TARGETS,
    Target,
    converse,
    messages,
)
from tests.installed import NODE, clean_environment, installed
from tests.mcp.test_mcp import declare

pytestmark = pytest.mark.slow
FOLDER = Path(__file__).parent
VECTORS = FOLDER / "schemas.json"
NAMED = "a{:04}"
VENDORS = {"anthropic": messages, "bedrock": converse}


def with_servers(target: Target, vendor: str = "openai-compatible") -> Target:
    provider = VENDORS.get(vendor, target.provider)
    answers = (("model", vendor),)
    variant = f"{target.name}+mcp"
    return replace(
        target, variant=variant, answers=answers, provider=provider, start=subprocess.Popen
    )


ROWS = [pytest.param(with_servers(target), "chat", id=target.name) for target in TARGETS]
EACH_VENDOR = [
    *ROWS,
    *(
        pytest.param(
            with_servers(target, vendor),
            vendor,
            id=f"{target.name}-{vendor}",
            marks=pytest.mark.full,
        )
        for target in TARGETS
        for vendor in VENDORS
    ),
]
IN_EACH_LANGUAGE = [
    pytest.param(*row.values, id=row.id, marks=() if row.id in SHARED else pytest.mark.full)
    for row in ROWS
]


def server_of(folder: Path, name: str, tools: list[Any], delay: float = 0) -> dict[str, Any]:
    file = folder / f"{name}.json"
    file.write_text(json.dumps(tools))
    arguments = [str(FOLDER / "declared.py"), str(file), str(delay)]
    return {"command": sys.executable, "args": arguments}


@contextmanager
def talking(target: Target, folder: Path, **settings: str) -> Iterator[tuple[Server, Chat]]:
    provider = Provider()
    server = Server(target, folder, provider.origin, settings)
    try:
        yield server, Chat(server, provider)
    finally:
        server.stop()
        provider.close()


def offered(api: str, request: dict[str, Any]) -> list[str]:
    """The names of the tools of a request that no vendor would refuse."""
    assert refusals(api, request) == []
    if api == "bedrock":
        return [
            tool["toolSpec"]["name"]
            for tool in request["toolConfig"]["tools"]
            if "toolSpec" in tool
        ]
    return [(tool.get("function") or tool)["name"] for tool in request["tools"]]


def used(chat: Chat, tool: str, **arguments: object) -> str:
    """The result of a call, as the model got it."""
    prompt = f"{tool} {time.monotonic()}"
    reply = chat.say(prompt, [Call(tool, arguments)])
    assert reply.status == 200, (reply, chat.server.log)
    results = [entry[1] for entry in chat.provider.calls[-1].history if entry[0] == "result"]
    return str(results[-1])


def test_both_languages_repair_each_schema_in_the_same_way() -> None:
    data = json.loads(VECTORS.read_text())
    python, node = installed("strands-python+mcp"), installed("vercel-typescript+mcp")
    script = FOLDER / "schemas_in_python.py"
    for command in (
        [str(python / ".venv" / "bin" / "python"), str(script), str(VECTORS)],
        [str(NODE), str(FOLDER / "schemas.mjs"), str(node), str(VECTORS)],
    ):
        result = subprocess.run(
            command, env=clean_environment(), capture_output=True, text=True, check=False
        )
        assert result.returncode == 0, result.stderr
        found = json.loads(result.stdout)
        assert found["refused"] == data["refused"]
        for vector, outcome in zip(data["vectors"], found["vectors"], strict=True):
            assert outcome == vector["expected"], vector["name"]


@pytest.mark.parametrize(("target", "api"), EACH_VENDOR)
def test_every_tool_that_can_be_repaired_reaches_the_provider(
    target: Target, api: str, tmp_path: Path
) -> None:
    vectors = json.loads(VECTORS.read_text())["vectors"]
    tools = [
        {"name": NAMED.format(at), "description": it["description"], "inputSchema": it["schema"]}
        for at, it in enumerate(vectors)
    ]
    fields: list[Any] = [
        *[{"inputSchema": it} for it in (None, {"type": "object", "required": None}, {}, True)],
        *[{"inputSchema": {"properties": it}} for it in (None, {"a": None}, {"a": True}, {"a": 1})],
        *[{"description": it} for it in (None, 1, "", "x" * 1500, ["a"])],
        *[{it: None} for it in ("title", "annotations", "_meta", "icons", "execution")],
        {"outputSchema": {"type": "strnig"}},
        {"outputSchema": {"type": "object", "required": ["a"]}},
        {"annotations": {"readOnlyHint": "yes"}},
    ]
    malformed: list[Any] = [
        {"name": f"m{at}", "inputSchema": {"type": "object"}, **more}
        for at, more in enumerate(fields)
    ]
    malformed += [{}, None, "a", {"name": None}, {"name": 1, "inputSchema": {}}]
    names = ["a-b", "a_b", "a.b", "x" * 80, f"{'x' * 80}y", "word-count", "docs/get"]
    odd = [{"name": name, "inputSchema": {"type": "object"}} for name in names]
    declare(
        tmp_path,
        vectors=server_of(tmp_path, "vectors", tools),
        malformed=server_of(tmp_path, "malformed", malformed),
        odd=server_of(tmp_path, "odd", odd),
    )
    with talking(target, tmp_path) as (server, chat):
        assert chat.say("hello").status == 200, server.log
        found = offered(api, chat.provider.calls[-1].request)
        refused = [at for at, it in enumerate(vectors) if "refused" in it["expected"]]
        for at, vector in enumerate(vectors):
            assert (NAMED.format(at) in found) == (at not in refused), vector["name"]
        assert {f"m{at}" for at in range(len(fields))} <= set(found)
        assert {"a-b", "docs_get"} <= set(found)
        assert sum(name.startswith("a_b_") for name in found) == 2, found
        assert sum(name.startswith("x" * 55 + "_") for name in found) == 2
        assert len(found) == len(set(found)) <= 128
        for at in refused:
            why = vectors[at]["expected"]["refused"]
            line = f"MCP server vectors: tool {NAMED.format(at)} is left out: {why}"
            assert server.log.count(line) == 1, server.log
        counts = f"lists {len(vectors)} tools, {len(vectors) - len(refused)} are offered"
        assert f"MCP server vectors: {counts}" in server.log
        assert f"MCP server odd: lists {len(odd)} tools, {len(odd)} are offered" in server.log
        at_keys = next(at for at, it in enumerate(vectors) if it["name"] == "nested odd keys")
        vector = vectors[at_keys]
        answer = used(chat, NAMED.format(at_keys), **vector["arguments"])
        assert json.loads(answer) == [NAMED.format(at_keys), vector["expected"]["restored"]]
        assert used(chat, f"m{len(fields) - 2}") == f'["m{len(fields) - 2}",{{}}]'
        assert used(chat, "docs_get", a=1) == '["docs/get",{"a":1}]'
        assert "Traceback" not in server.log


CHANGING = """
import logging
from types import SimpleNamespace
from my_agent.harness.mcp_servers.capability import McpServers
from my_agent.harness.mcp_servers.connection import Tool
from my_agent.harness.mcp_servers.settings import McpSettings

logging.basicConfig(format="%(message)s")
servers = McpServers(McpSettings(), [], lambda: SimpleNamespace(agent=SimpleNamespace(TOOLS=[])))
server = SimpleNamespace(declared=SimpleNamespace(name="some"), tools=[])
servers.servers = [server]
servers._is_open = True
for number in range(40):
    server.tools = [Tool(f"tool_{number}_{at}", {}) for at in range(100)]
    servers._name_tools()
assert len(servers.tools()) == 100
print(len(servers._names))
schema = {"properties": {"a": {"$ref": "#/list/" + "9" * 5000}}, "list": [1]}
server.tools = [Tool("broken", {"inputSchema": schema}), Tool("sound", {})]
servers._name_tools()
print(len(servers.tools()))
"""


@pytest.mark.full
def test_lists_that_change_and_a_schema_that_fails() -> None:
    project = installed("strands-python+mcp")
    result = subprocess.run(
        [str(project / ".venv" / "bin" / "python"), "-c", CHANGING],
        env=clean_environment(),
        cwd=project,
        capture_output=True,
        text=True,
    )
    assert result.stdout.split() == ["100", "1"], result.stderr
    assert "MCP server some: tool broken is left out: its schema is not valid" in result.stderr


@pytest.mark.parametrize(("target", "api"), IN_EACH_LANGUAGE)
def test_the_file_decides_which_tools_are_offered(target: Target, api: str, tmp_path: Path) -> None:
    def tools(name: str, count: int) -> list[Any]:
        return [{"name": f"{name}{at}", "inputSchema": {"type": "object"}} for at in range(count)]

    declare(
        tmp_path,
        slow=server_of(tmp_path, "slow", tools("slow", 14), delay=12),
        large=server_of(tmp_path, "large", tools("large", 100)),
        last=server_of(tmp_path, "last", tools("last", 16)),
    )
    with talking(target, tmp_path, MCP_TIMEOUT_SECONDS="30") as (server, chat):
        deadline = time.monotonic() + 40
        found = list[str]()
        while "slow0" not in found:
            assert time.monotonic() < deadline, server.log
            assert chat.say(f"hello {time.monotonic()}").status == 200, server.log
            found = offered(api, chat.provider.calls[-1].request)
            time.sleep(0.5)
        assert {f"slow{at}" for at in range(14)} <= set(found)
        assert {f"large{at}" for at in range(100)} <= set(found)
        assert "last0" in found
        assert "last15" not in found
        assert 120 < len(found) <= 128
        assert "MCP server last: the limit of 128 tools" in server.log
        assert "MCP server last: lists 16 tools, " in server.log


@pytest.mark.parametrize(("target", "api"), IN_EACH_LANGUAGE)
def test_a_tool_that_a_provider_refuses_is_named(target: Target, api: str, tmp_path: Path) -> None:
    tool = {"name": "hubspot-search", "inputSchema": {"type": "object"}}
    declare(tmp_path, hubspot=server_of(tmp_path, "hubspot", [tool]))
    with talking(target, tmp_path) as (server, chat):
        chat.say("hello")
        at = offered(api, chat.provider.calls[-1].request).index("hubspot-search")
        why = f"Invalid 'tools[{at}].function.parameters': array schema missing items."
        assert chat.say("refuse", [Refuse(400, text=why)]).status == 502
        assert "the provider rejects tool hubspot-search" in server.log
        assert "array schema" not in server.log


@pytest.mark.full
@pytest.mark.parametrize(
    "target", [pytest.param(it.values[0], id=it.id, marks=it.marks) for it in IN_EACH_LANGUAGE]
)
def test_check_counts_tools_of_servers(target: Target, tmp_path: Path) -> None:
    tools = [{"name": name, "inputSchema": {"type": name}} for name in ("object", "string")]
    declare(tmp_path, some=server_of(tmp_path, "some", tools))
    command = target.command(target.project())[:-1]
    result = subprocess.run(
        [*command, "check", "--connect"],
        cwd=tmp_path,
        env=clean_environment() | {"HOST": "127.0.0.1"},
        capture_output=True,
        text=True,
    )
    assert result.stdout == "0 errors, 0 warnings\n", result
    assert "MCP server some: lists 2 tools, 1 are offered" in result.stderr
    assert "tool string is left out" in result.stderr


OWN = FOLDER / "refused"


@pytest.mark.parametrize("target", TARGETS, ids=lambda it: it.name)
def test_check_names_own_tools_that_providers_refuse(target: Target, tmp_path: Path) -> None:
    (agent,) = OWN.glob(f"{target.name.replace('-', '_')}.*")
    project = installed(target.name, agent)
    result = subprocess.run(
        [*target.command(project)[:-1], "check"],
        cwd=tmp_path,
        env=clean_environment() | {"HOST": "127.0.0.1"},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result
    assert "TOOL Tool draw: the tuple at properties.point needs prefixItems" in result.stdout
    assert "TOOL Tool draw: its description has 1100 characters, the maximum" in result.stdout
    assert result.stdout.endswith("\n0 errors, 2 warnings\n"), result.stdout
