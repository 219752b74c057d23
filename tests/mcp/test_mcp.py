"""MCP servers as an owner attaches them: both transports, and what they may do wrong."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from hooks.rendering import render
from hooks.variants import answers_of
from tests.conformance.client import SESSION
from tests.conformance.server import Server
from tests.conformance.targets import SHARED, TARGETS, Target
from tests.conftest import ROOT
from tests.installed import (
    clean_environment,
    environment,
    installed,
    link_environment,
    rendered,
    uv,
)
from tests.mcp.redirecting import STATUSES, redirecting
from tests.stores.servers import wait_for
from tests.support.blocking import blocking

pytestmark = pytest.mark.slow
FOLDER = Path(__file__).parent
ROWS = [
    pytest.param(
        replace(target, variant=f"{target.name}+mcp", start=subprocess.Popen),
        id=target.name,
        marks=() if target.name in SHARED else pytest.mark.full,
    )
    for target in TARGETS
]
# What takes long, and is the same in both languages: once in a usual run.
IN_ONE = [
    pytest.param(*row.values, id=row.id, marks=pytest.mark.full if at else ())
    for at, row in enumerate(ROWS)
]
UNKNOWN = "the connection was lost, so the outcome of the call is unknown."
SPOKEN = re.compile(r"The tool answered: (.*)", re.DOTALL)


class Conversation:
    """One session; each turn calls a tool, and the next has to have the next number."""

    def __init__(self, server: Server, session: str = "s") -> None:
        self.server, self.session, self.turn = server, session, 0

    def use(self, tool: str, **arguments: object) -> str:
        """What the tool answered, as the model got it. The turn is committed whatever that was."""
        prompt = f"use {tool}: {json.dumps(arguments)}"
        headers = {SESSION: self.session, "Accept": "application/json"}
        reply = self.server.post({"prompt": prompt}, headers)
        assert reply.status == 200, reply
        self.turn += 1
        assert reply.json["turn"] == self.turn
        answer = SPOKEN.search(reply.json["reply"])
        assert answer, reply.json
        return answer[1]

    def use_soon(self, tool: str, within: float = 60) -> str:
        """The answer of a tool that a server has as soon as it is connected."""
        deadline = time.monotonic() + within
        while (answer := self.use(tool)).startswith("Unknown tool"):
            assert time.monotonic() < deadline, self.server.log
            time.sleep(0.5)
        return answer


def declare(folder: Path, file: str = ".mcp.json", /, **servers: object) -> None:
    (folder / file).write_text(json.dumps({"mcpServers": servers}, indent=2))


def own(*arguments: str, **env: str) -> dict[str, object]:
    return {"command": sys.executable, "args": [str(FOLDER / "server.py"), *arguments], "env": env}


def hostile(kind: str, folder: Path) -> dict[str, object]:
    return {"command": sys.executable, "args": [str(FOLDER / "hostile.py"), kind, str(folder)]}


def is_running(process: str) -> bool:
    with suppress(ProcessLookupError):
        os.kill(int(process.removeprefix("process ")), 0)
        return True
    return False


class Remote:
    """The server over streamable HTTP, which can be killed and started again in one place."""

    def __init__(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *options: str) -> None:
        command = [sys.executable, str(FOLDER / "server.py"), str(self.port), *options]
        self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while socket.socket().connect_ex(("127.0.0.1", self.port)):
            assert time.monotonic() < deadline
            time.sleep(0.1)

    def kill(self) -> None:
        if self.process:
            self.process.kill()
            self.process.wait()


@pytest.fixture
def remote() -> Iterator[Remote]:
    remote = Remote()
    yield remote
    remote.kill()


@pytest.fixture
def sdk(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """Settings with which a server in Python has another allowed version of the MCP SDK."""
    if not request.param:
        return {}
    manifest = tomllib.loads((rendered("strands-python+mcp") / "pyproject.toml").read_text())
    (wanted,) = (it for it in manifest["project"]["dependencies"] if it.startswith("mcp>"))
    install = [*uv(), "pip", "install", "-q", "--python", sys.executable, "--no-deps", "--target"]
    options = [str(tmp_path / "sdk"), "--resolution", request.param]
    for package in (wanted, wanted.replace("mcp", "mcp-types")):
        subprocess.run([*install, *options, package], env=clean_environment(), check=True)
    return {"PYTHONPATH": str(tmp_path / "sdk")}


# The versions of the MCP SDK: what the target resolves to, and the ends of what it allows.
EACH_SDK = [
    *(pytest.param(*row.values, "", id=row.id, marks=row.marks) for row in ROWS),
    *(
        pytest.param(*row.values, end, id=f"{row.id}-{end}", marks=pytest.mark.full)
        for row in ROWS
        for end in ("lowest-direct", "highest")
        if str(row.id).endswith("-python")
    ),
]


@pytest.mark.full
@pytest.mark.parametrize("target", ROWS)
def test_a_blocked_event_loop_is_no_silence_of_a_server(target: Target, tmp_path: Path) -> None:
    declare(tmp_path, example=own())
    server = Server(blocking(target, seconds=4), tmp_path, None, {"MCP_TIMEOUT_SECONDS": 3})
    try:
        conversation = Conversation(server)
        conversation.use_soon("folder")
        block = threading.Timer(0.3, server.get, ["/block"])
        block.start()
        assert conversation.use("wait", seconds=1) == "waited"
        block.join()
    finally:
        server.stop()


@pytest.mark.full
@pytest.mark.parametrize("target", ROWS)
@pytest.mark.rows(where=lambda row: row["target"].is_node)  # the SDK of Python has no timer there
def test_a_blocked_event_loop_changes_no_reason_of_a_server_that_is_down(
    target: Target, tmp_path: Path
) -> None:
    def command(project: Path) -> list[str]:
        node, *serve = target.command(project)
        pause = "Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 4500)"
        return [node, "--import", f"data:text/javascript,setTimeout(() => {pause}, 2500)", *serve]

    declare(tmp_path, silent=hostile("silent", tmp_path))
    blocked = replace(target, command=command, start=subprocess.Popen)
    server = Server(blocked, tmp_path, None, {"MCP_TIMEOUT_SECONDS": 3})
    try:
        wait_for("the end of the connection", lambda: "MCP server silent: " in server.log)
        assert "silent: it did not answer within 3 seconds: it waits for a login" in server.log
    finally:
        server.stop()


@pytest.mark.full
@pytest.mark.parametrize(("target", "sdk"), EACH_SDK, indirect=["sdk"])
def test_a_conversation_continues_without_its_servers(
    target: Target, sdk: dict[str, str], tmp_path: Path, remote: Remote
) -> None:
    url = f"http://127.0.0.1:{remote.port}/mcp"
    there = {"type": "streamable-http", "url": url, "headers": {"A": "b"}, "timeout": 5}
    here = own(KEY="${OWN_KEY}", SAME="${env:OWN_KEY:-other}", OTHER="${NO_KEY:-a b}")
    (tmp_path / "sub").mkdir()
    declare(tmp_path, "agent.json", local=here | {"cwd": "${SUB:-sub}"}, remote=there)
    declare(tmp_path, assistant=own())
    settings: dict[str, int | str] = {"OWN_KEY": "k", "API_TOKEN": "", "MCP_TIMEOUT_SECONDS": 60}
    settings |= {"MCP_FILE": "agent.json", "https_proxy": "http://127.0.0.1:9"}
    settings |= {"NO_PROXY": "127.0.0.1", "NODE_EXTRA_CA_CERTS": "/dev/null", **sdk}
    server = Server(target, tmp_path, None, settings)
    try:
        talk = Conversation(server)
        process = talk.use_soon("process")
        assert "MCP server remote: it cannot be reached" in server.log
        assert talk.use("add", a=1, b=2) == "3"
        assert talk.use("reads", name="KEY") == "k"
        assert talk.use("reads", name="SAME") == "k"
        assert talk.use("reads", name="OTHER") == "a b"
        assert talk.use("reads", name="OWN_KEY") == "unset"
        assert talk.use("reads", name="https_proxy") == "http://127.0.0.1:9"
        assert talk.use("reads", name="NODE_EXTRA_CA_CERTS") == "/dev/null"
        assert talk.use("folder") == str(tmp_path / "sub")
        assert talk.use("word_count", text="one two") == "2"
        assert talk.use("local_word_count", text="one two") == "7 characters"
        assert "[image: left out, it is not text]" in talk.use("picture")
        assert talk.use("fails").endswith("Error executing tool fails")
        assert "x\n[cut: 100001 characters" in talk.use("long_text", size=100_001)

        assert talk.use("dies").endswith(f"MCP server local is down: {UNKNOWN}")
        again = talk.use("process")
        os.kill(int(again.removeprefix("process ")), signal.SIGKILL)
        time.sleep(0.5)  # it may notice that, or not
        assert len({process, again, talk.use("process")}) == 3

        remote.start()
        first = talk.use_soon("remote_process")
        assert talk.use("remote_add", a=1, b=2) == "3"
        local = talk.use("process")  # what came later has taken no name away
        assert local not in {first, again}
        began = time.monotonic()
        assert talk.use("remote_dies").endswith(f"MCP server remote is down: {UNKNOWN}")
        assert time.monotonic() - began < 10
        remote.kill()
        assert "MCP server remote is down: " in talk.use("remote_process")
        remote.start()
        assert talk.use("remote_process") not in {first, ""}
        assert first not in talk.use("remote_process")
        remote.kill()
        remote.start()  # the session that the agent has there is unknown
        assert talk.use("remote_process").startswith("process ")

        process = talk.use("process")
        assert process == local
        assert is_running(process)
        server.signal()
        assert server.exit_code(30) == 0
        assert not is_running(process)
        assert "Traceback" not in server.log
        assert "assistant" not in server.log
    finally:
        server.stop()


@pytest.mark.parametrize(("target", "sdk"), EACH_SDK, indirect=["sdk"])
def test_a_call_of_an_unknown_session_is_repeated_and_a_running_call_is_not(
    target: Target, sdk: dict[str, str], tmp_path: Path, remote: Remote
) -> None:
    remote.start("2")
    declare(tmp_path, remote={"url": f"http://127.0.0.1:{remote.port}/mcp"})
    server = Server(target, tmp_path, None, {"MCP_TIMEOUT_SECONDS": 20, **sdk})
    runs, end = tmp_path / "runs", tmp_path / "end"
    runs.touch()
    try:
        talk = Conversation(server)
        talk.use_soon("process")
        with ThreadPoolExecutor() as pool:
            call = {"runs": str(runs), "end": str(end)}
            running = pool.submit(Conversation(server, "running").use, "note", **call)
            wait_for("a run", lambda: runs.read_text() == "run\n")
            others = [Conversation(server, f"other-{number}") for number in range(2)]
            rejected = [pool.submit(other.use, "sound") for other in others]
            assert [call.result() for call in rejected] == ["sound", "sound"]
            end.touch()
            assert running.result() == "noted"
        assert runs.read_text() == "run\n"
        assert talk.use("sound") == "sound"
    finally:
        server.stop()


LATE = "it did not answer within 8 seconds: it waits for a login"
LINES = [
    f"silent: {LATE}; the next turn reconnects",
    f"rubbish: {LATE}; the next turn reconnects",
    "ends: its process ended: the licence has expired; the next turn reconnects",
    "list: tool flat is left out: its schema is not of type object",
    "missing: the command no-such-command was not found; the next turn reconnects",
    "locked: NO_SUCH_KEY is not set; it stays down",
    "asks: ${input:key} is not an environment variable; it stays down",
    "old: its type must be stdio or http; it stays down",
    "wrong: args must be a list of strings; it stays down",
    "odd: a tool whose name has no ASCII letter or digit is left out",
    "odd: the tool name word_count is taken; this tool is named odd_word_count",
    "odd: tool broken is left out: its schema is not valid",
    "odd: tool long is left out: its description and schema are too long",
    "many: the limit of 128 tools, including the agent's, is reached; further tools are left out",
    "says: it answered with an error: the licence\\u001b[31m has expired; the next turn reconnects",
    "refuses: it answered with an error: no tools today; the next turn reconnects",
    "grows: lists 2 tools, 2 are offered",
    "odd: lists 13 tools, 9 are offered",
]


@pytest.mark.full
@pytest.mark.parametrize("target", ROWS)
def test_a_hostile_server_costs_one_clear_line_and_no_turn(target: Target, tmp_path: Path) -> None:
    names = ("grows", "odd", "list", "many", "silent", "rubbish", "ends", "says", "refuses")
    kinds = {name: hostile(name, tmp_path) for name in names}
    missing, locked = {"command": "no-such-command"}, {"url": "https://${NO_SUCH_KEY}/mcp"}
    unusable: dict[str, object] = {
        "asks": {"url": "https://127.0.0.1/mcp", "headers": {"A": "${input:key}"}},
        "old": {"type": "sse", "url": "https://127.0.0.1/mcp"},
        "wrong": {"command": "a", "args": "b"},
        "off": {"command": 1, "disabled": True},
    }
    declare(tmp_path, **kinds, missing=missing, locked=locked, **unusable)
    server = Server(target, tmp_path, None, {"MCP_TIMEOUT_SECONDS": 8})
    try:
        talk = Conversation(server)
        assert talk.use("get-sum_2", text="a") == "this is get-sum/2"
        assert talk.use("odd_word_count", text="a b") == "this is word_count"
        assert talk.use("word_count", text="a b") == "2"
        assert talk.use("tool_3", text="a") == "this is tool_3"
        assert talk.use("sound", text="a") == "this is sound"
        assert talk.use("tool_400", text="a").startswith("Unknown tool")
        began = time.monotonic()
        assert talk.use("never").endswith("MCP server odd did not answer within 8 seconds.")
        assert time.monotonic() - began < 20
        assert talk.use("no_result").endswith("MCP server odd sent an invalid answer.")
        assert talk.use("wrong").endswith("it rains")
        assert talk.use("empty") == "[empty]"
        assert talk.use("link") == "plan file:///plan.md"
        assert talk.use("grow") == "this is grow"
        assert talk.use_soon("grown") == "this is grown"
        assert talk.use("a_b") == "this is a_b", "the name of a tool that is gone is free"
        assert talk.use("grow").startswith("Unknown tool")
        assert talk.use("huge").endswith("[cut: 10000000 characters, 100000 are allowed]")
        assert talk.use("half").endswith(f"MCP server odd is down: {UNKNOWN}")
        assert talk.use("get-sum_2", text="a") == "this is get-sum/2"
        for line in LINES:
            assert server.log.count(f"MCP server {line}") == 1, server.log
        assert "MCP server off" not in server.log
        began = time.monotonic()
        server.signal()
        assert server.exit_code(30) == 0
        started = [path.stem for path in tmp_path.glob("*.pid")]
        assert len(started) >= len(names)
        while any(map(is_running, started)):
            assert time.monotonic() - began < 30
            time.sleep(0.1)
        assert "Traceback" not in server.log
    finally:
        server.stop()


@pytest.mark.full
@pytest.mark.parametrize("target", ROWS)
def test_a_flood_ends_with_its_call_and_bad_bytes_cost_nothing(
    target: Target, tmp_path: Path
) -> None:
    declare(tmp_path, noisy=hostile("noisy", tmp_path))
    server = Server(target, tmp_path, None, {"MCP_TIMEOUT_SECONDS": 6})
    try:
        talk = Conversation(server)
        assert talk.use("bytes") == "caf\ufffd"
        (first,) = (path.stem for path in tmp_path.glob("*.pid"))
        assert talk.use("flood").endswith("did not answer within 6 seconds.")
        wait_for("the end of the flood", lambda: not is_running(first))
        warning = "noisy: it sent more than 1000 messages during a call"
        wait_for("the warning", lambda: warning in server.log)
        assert talk.use_soon("sound") == "this is sound"
    finally:
        server.stop()


@pytest.mark.parametrize(("target", "sdk"), EACH_SDK, indirect=["sdk"])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_no_redirect_takes_headers_or_arguments_to_another_host(
    target: Target, sdk: dict[str, str], host: str, tmp_path: Path
) -> None:
    with redirecting(host) as (origin, received):
        declare(
            tmp_path,
            **{
                f"{kind}{status}": {
                    "url": f"{origin}/{kind}/{status}",
                    "headers": {"X-Key": "secret-key", "Authorization": "Bearer secret-token"},
                }
                for kind in ("start", "call")
                for status in STATUSES
            },
            **{f"own{status}": {"url": f"{origin}/own/{status}"} for status in (307, 308)},
        )
        server = Server(target, tmp_path, None, {"MCP_TIMEOUT_SECONDS": 20, **sdk})
        try:
            talk = Conversation(server)
            for status in (307, 308):
                assert talk.use_soon(f"own_{status}") == "this is there"
            for status in STATUSES:
                began = time.monotonic()
                assert f"MCP server call{status}" in talk.use(f"call_{status}", text="secret-text")
                assert time.monotonic() - began < 10
                assert received == []
                assert f"MCP server start{status}: it answered HTTP {status}" in server.log
        finally:
            server.stop()
        assert received == []


FILE = """\
{
  "mcpServers": {
    "files": {"command": "no-such-command",
      "args": ["${UNSET_A}"],
      "env": {"A": "${UNSET_A:-a}", "B": "${env:SET_B}", "C": "${env:UNSET_C}",
        "D": "${input:d}", "E": "${SET_B"}},
    "gone": {
      "command": "no-such-command"
    },
    "docs": {"type": "streamableHttp",
      "url": "http://docs.example/mcp",
      "headers": {"A": "${SET_B}"}
    },
    "old": {
      "type": "sse", "url": "https://docs.example/sse"
    },
    "mixed": {"command": "a",
      "disabled": false,
      "args": "b",
      "env": {"A": 1}
    },
    "bare": {"url": "docs.example"},
    "a\\nb": {"command": "a"},
    "none": {},
    "text": "a",
    "off": {"disabled": true, "command": ""},
    "there": {"command": "/bin/sh",
      "timeout": 5,
      "cwd": "no-such-folder"},
    "io.example/a b": {"command": "HERE/npx"}
  },
  "inputs": []
}
"""
FOUND = """\
.mcp.json:32 MCP-IGNORED Field 'inputs' is ignored: only mcpServers is supported.
.mcp.json:4 MCP-VARIABLE Server files stays down: UNSET_A is not set.
.mcp.json:5 MCP-VARIABLE Server files stays down: UNSET_C is not set.
.mcp.json:6 MCP-VARIABLE Server files stays down: ${input:d} is not an environment variable.
.mcp.json:6 MCP-VARIABLE Server files stays down: ${SET_B is not an environment variable.
.mcp.json:8 MCP-COMMAND The command no-such-command of server gone was not found.
.mcp.json:11 MCP-PLAIN-HTTP The headers of server docs travel over plain http: use https.
.mcp.json:15 MCP-SERVER Server old stays down: its type must be stdio or http.
.mcp.json:19 MCP-FIELD Server mixed stays down: args must be a list of strings.
.mcp.json:20 MCP-FIELD Server mixed stays down: env must be an object of strings.
.mcp.json:22 MCP-FIELD Server bare stays down: url must be an http address.
.mcp.json:23 MCP-SERVER Server "a\\nb" stays down: \
its name must match [A-Za-z0-9_][A-Za-z0-9_ ./@-]{0,63}.
.mcp.json:24 MCP-FIELD Server none stays down: it needs the field command.
.mcp.json:25 MCP-SERVER Server text stays down: it must be an object.
.mcp.json:28 MCP-IGNORED Field 'timeout' is ignored: \
supported fields are type, command, args, env, cwd.
.mcp.json:27 MCP-COMMAND The folder no-such-folder of server there was not found.
.mcp.json:30 MCP-IMAGE The image cannot run HERE/npx for server io.example/a b: see docs/mcp.md.
0 errors, 17 warnings
"""


def check(target: Target, folder: Path, *options: str, **settings: str) -> str:
    command = target.command(installed(target.variant))[:-1]
    result = subprocess.run(
        [*command, "check", *options],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOST": "127.0.0.1", **settings},
        capture_output=True,
        text=True,
    )
    assert "Traceback" not in result.stderr, result.stderr
    return result.stdout


@pytest.mark.full
@pytest.mark.parametrize("target", IN_ONE)
def test_check_reports_mistakes_with_their_lines(target: Target, tmp_path: Path) -> None:
    (tmp_path / ".mcp.json").write_text(FILE.replace("HERE", str(tmp_path)))
    (tmp_path / "Dockerfile").touch()
    (tmp_path / "npx").touch(0o755)
    assert check(target, tmp_path, SET_B="b") == FOUND.replace("HERE", str(tmp_path))
    said = check(target, tmp_path, MCP_FILE="own.json")
    assert said.startswith("own.json:0 MCP-FILE There is no such file")
    (tmp_path / ".mcp.json").write_text('{\n  "mcpServers": {\n    "a" {}\n  }\n}\n')
    assert re.search(r"^\.mcp\.json:3 MCP-FILE The file is not valid JSON", check(target, tmp_path))
    (tmp_path / ".mcp.json").write_text("[]")
    assert check(target, tmp_path).startswith(".mcp.json:1 MCP-FILE Write {")
    declare(tmp_path, ends=hostile("ends", tmp_path), odd=hostile("odd", tmp_path))
    assert check(target, tmp_path) == "0 errors, 0 warnings\n"
    why = "Server ends is down: its process ended: the licence has expired."
    expected = f".mcp.json:3 MCP-CONNECT {why}\n0 errors, 1 warnings\n"
    assert check(target, tmp_path, "--connect") == expected
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (tmp_path / "tools" / "python").chmod(0o755)
    there = {**own(), "command": "./python", "cwd": "tools"}
    # Without that library, the loader says, before the process does.
    warned = own(LD_PRELOAD="/no/such/library.so")
    declare(tmp_path, there=there, warned=warned)
    assert check(target, tmp_path, "--connect") == "0 errors, 0 warnings\n"
    declare(tmp_path, named={"command": "cat", "args": ["${constructor}"]})
    assert check(target, tmp_path).endswith(
        "named stays down: constructor is not set.\n0 errors, 1 warnings\n"
    )


@pytest.mark.full
@pytest.mark.parametrize("target", ROWS)
def test_tools_of_servers_and_of_long_term_memory_go_together(
    target: Target, tmp_path: Path
) -> None:
    project = tmp_path / "my-agent"
    answers = answers_of(f"{target.name}+agentcore") | {"extras": ["mcp", "tracing"]}
    render(ROOT, answers, project)
    link_environment(project, environment(target.name))
    declare(project, odd=hostile("odd", tmp_path))
    lines = ['use get-sum_2: {"text": "a"}', 'use search_memory: {"query": "sum"}']
    result = subprocess.run(
        [*target.command(project)[:-1], "chat"],
        cwd=project,
        env=clean_environment(),
        input="\n".join([*lines, 'use word_count: {"text": "a b"}', ""]),
        capture_output=True,
        text=True,
    )
    answers_of_tools = SPOKEN.pattern.replace(r"(.*)", r"([^\n]*)")
    said = re.findall(answers_of_tools, result.stdout)
    assert said[0].startswith("this is get-sum/2"), result
    assert "Unknown tool" not in result.stdout, result
    assert said[2].startswith("2"), result
    assert result.returncode == 0
