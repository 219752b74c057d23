"""What is logged, and what never is."""

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.conformance.chat import CANARY, Chat
from tests.conformance.client import KEY, Exchange
from tests.conformance.provider import PATIENCE, Provider
from tests.conformance.server import ADDRESS, Fleet, Server
from tests.conformance.steps import CUT, ERROR, HANG, Call, End, Refuse, Step
from tests.conformance.targets import Target
from tests.installed import NODE, installed

pytestmark = pytest.mark.about("turns")


def test_a_log_holds_no_prompt_and_no_reply(chat: Chat) -> None:
    secret = f"The password is {CANARY}."
    chat.say(secret, [f"So it is {CANARY}."])
    chat.say(secret, [Call("word_count", {"text": secret})], ["I see."])
    chat.say(secret, [Call("word_count", {"wrong": secret})], ["I see."])
    chat.say(secret, [Call("no_such_tool", {"text": secret})], ["I see."])
    chat.say(secret, [Call("word_count", raw=CANARY)], ["I see."])
    chat.say(secret, [Call(CANARY, {"text": "a"})], ["I see."])
    chat.say(secret, ["So", End(CANARY)])
    steps: list[Step] = [[Refuse(400)], [Refuse(401)], ["Well, ", CUT], [ERROR], ["So", ERROR], []]
    for step in steps:
        assert b"event: done" not in chat.say(secret, step).body
    leaver = chat.start(secret, [f"{CANARY} ", HANG])
    leaver.event()
    leaver.leave()
    chat.server.post(f'{{"prompt": "{CANARY}'.encode(), chat.headers)
    chat.server.post({"prompt": CANARY, "end_session": True}, chat.headers)
    chat.server.post({"prompt": f"{CANARY}" * 100_000}, chat.headers)
    chat.server.settle()
    assert CANARY not in chat.server.log


def lines(chat: Chat, count: int) -> list[str]:
    """What the log says about a session, when it has as many lines as it should."""
    deadline = time.monotonic() + PATIENCE
    while len(found := re.findall(rf"(\w+) session {chat.session}: (.*)", chat.server.log)) < count:
        assert time.monotonic() < deadline, "an operator finds nothing about it"
        time.sleep(0.01)  # it comes through a pipe
    return [re.sub(r"ms=[0-9]+", "ms=N", f"{level} {text}") for level, text in found]


def test_each_turn_is_one_line_of_the_log(chat: Chat) -> None:
    chat.say("Hello.", ["Hi."], headers={KEY: "1"})
    chat.say("Hello.", headers={KEY: "1"})
    chat.say("Count.", [Call("word_count", {"text": "a b"})], ["Two."])
    chat.say("Hello.", [Refuse(401)])
    chat.say("Hello.", [])
    leaver = chat.start("Hello.", ["Well, ", HANG])
    leaver.event()
    leaver.leave()
    chat.server.settle()
    first, again, second, failed, empty, left = lines(chat, 6)
    assert first == "INFO turn=1 outcome=committed ms=N tokens_in=3 tokens_out=1"
    assert again == "INFO turn=1 outcome=replayed ms=N"
    assert second == "INFO turn=2 outcome=committed ms=N tokens_in=6 tokens_out=2"
    assert failed.startswith("WARNING turn=3 outcome=model_failed ms=N detail=")
    assert "401" in failed
    assert re.fullmatch("WARNING turn=3 outcome=empty_reply ms=N( tokens_.*)?", empty)
    assert left == "INFO turn=3 outcome=cancelled ms=N"


def test_each_line_of_a_log_in_json_is_one_object(fleet: Fleet, provider: Provider) -> None:
    server = fleet.fresh(LOG_FORMAT="json", TURN_TIMEOUT_SECONDS="2")
    chat = Chat(server, provider)
    chat.say("Hello.", ["Hi."])
    chat.say("Hello.", [Refuse(401)])
    chat.say(f"Hello {CANARY}.", [Call("word_count", {"wrong": CANARY})], ["I see."])
    server.settle()
    assert CANARY not in server.log
    entries = [json.loads(line) for line in server.log.splitlines()]
    for entry in entries:
        assert re.fullmatch(r"2[0-9]{3}-[0-9-]{5}T[0-9:]{8}\.[0-9]{3}Z", entry["time"])
        assert entry["level"] in {"INFO", "WARNING", "ERROR"}
        assert entry["message"]
    assert any("Listening on" in entry["message"] for entry in entries)
    first, failed, last = (entry for entry in entries if entry.get("session") == chat.session)
    assert first["message"].startswith(f"session {chat.session}: turn=1 outcome=committed ms=")
    known = {"turn": 1, "outcome": "committed", "tokens_in": 3, "tokens_out": 1}
    assert {name: first[name] for name in known} == known
    assert isinstance(first["ms"], int)
    assert not {"detail", "model"} & first.keys()
    assert (failed["level"], failed["outcome"], failed["turn"]) == ("WARNING", "model_failed", 2)
    assert "401" in failed["detail"]
    assert last["turn"] == 2


def test_the_server_logs_its_address_and_its_model(server: Server) -> None:
    host, port = server.address
    assert f"Listening on http://{host}:{port}" in server.log
    assert "test-model" in server.log


def test_a_password_in_the_providers_address_is_not_shown(fleet: Fleet) -> None:
    server = fleet.fresh(OPENAI_BASE_URL=f"http://ada:{CANARY}@127.0.0.1:9/v1")
    assert server.address
    assert "contacts http://127.0.0.1:9/v1" in server.log
    assert CANARY not in server.log


HOSTILE = "tool \\x1b[2J:\\nERROR forged"
PYTHON = f"""
import atexit, logging
from my_agent.main import cli
atexit.register(logging.getLogger("my_agent.harness.turn").warning, "{HOSTILE}")
cli(["chat"])
"""
TYPESCRIPT = f"""
process.argv.splice(1, 0, 'main.ts')
const {{ log }} = await import(process.cwd() + '/src/harness/log.ts')
process.on('exit', () => log('WARNING', '{HOSTILE}'))
await import(process.cwd() + '/src/main.ts')
"""


@pytest.mark.full
@pytest.mark.rows(where=lambda row: not row["target"].store)
def test_no_text_forges_a_line_of_the_log_of_chat(target: Target) -> None:
    project = installed(target.variant)
    command = [str(NODE), "--input-type=module", "-e", TYPESCRIPT, "--", "chat"]
    if "python" in target.name:
        command = [str(project / ".venv" / "bin" / "python"), "-c", PYTHON]
    environment = {"PATH": os.environ["PATH"]}
    done = subprocess.run(
        command, cwd=project, env=environment, input="", capture_output=True, text=True
    )
    line, more = done.stderr.splitlines()
    assert line.endswith(" WARNING tool \ufffd[2J:")
    assert more == "  ERROR forged"


THROWING = "process.on('SIGUSR2', () => { throw new Error() })"


@pytest.mark.rows(where=lambda row: not row["target"].store)
def test_an_agent_whose_log_nobody_reads_goes_on(target: Target, tmp_path: Path) -> None:
    """Its reader is gone; an error of nobody is logged; the log fails, and must not be logged."""
    command = target.command(installed(target.variant))
    is_python = "python" in target.name
    if not is_python:
        command = [command[0], "--import", f"data:text/javascript,{THROWING}", *command[1:]]
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "HOST": "127.0.0.1", "PORT": "0"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            assert process.stdout
            assert process.stderr
            port = next(int(match[1]) for match in map(ADDRESS.search, process.stdout) if match)
            process.stdout.close()
            process.stderr.close()
            for _ in range(2):
                exchange = Exchange(("127.0.0.1", port))
                exchange.send("POST", "/invocations", (), {"prompt": "Hello."})
                assert exchange.reply().status == 200
                if not is_python:
                    process.send_signal(signal.SIGUSR2)
            began, spent = time.monotonic(), cpu_seconds(process.pid)
            time.sleep(1)
            spent = cpu_seconds(process.pid) - spent
            assert spent < (time.monotonic() - began) / 2, "its log keeps it busy"
            process.terminate()
            assert process.wait(PATIENCE) == 0
        finally:
            process.kill()


def cpu_seconds(pid: int) -> float:
    """The time that a process has spent, in all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
