"""`chat` in a real terminal, key by key, and `serve --reload`; what the targets share, once."""

import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hooks.variants import TARGETS as VARIANTS
from tests.conformance.client import SESSION, Exchange
from tests.conformance.provider import PATIENCE, Provider
from tests.conformance.steps import CUT, HANG, Call, Hold, Step
from tests.conformance.targets import SHARED, TARGETS, Target
from tests.installed import (
    NODE,
    environment,
    installed,
    link_environment,
    rendered,
    target_of,
)
from tests.pseudo_terminal import CTRL_C, CTRL_D, ENTER, LEFT, UP, PseudoTerminal

pytestmark = pytest.mark.slow

USUAL = [
    pytest.param(target, id=target.name, marks=[] if target.name in SHARED else pytest.mark.full)
    for target in TARGETS
]
PROMPT = r"> $"
KEPT_NOTHING = "Interrupted: nothing of this turn was kept."
NO_FRAMEWORK = {
    "python": "import sys; sys.modules |= {'ai': None, 'strands': None}; from app.main import cli",
    "typescript": """
import { registerHooks } from 'node:module';
registerHooks({
  resolve(name, context, next) {
    if (/^(ai|@strands-agents)\\b/.test(name)) throw new Error('no framework');
    return next(name, context)
  },
})
""",
}
Talk = Callable[..., PseudoTerminal]


@pytest.fixture(scope="module", params=USUAL)
def target(request: pytest.FixtureRequest) -> Target:
    found: Target = request.param
    return found


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    provider = Provider()
    yield provider
    provider.close()


@pytest.fixture(scope="module")
def talk(
    target: Target, provider: Provider, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Talk]:
    """Start `chat` in a terminal and wait for its first prompt."""
    started: list[PseudoTerminal] = []

    def talk(*prefix: str, **variables: str) -> PseudoTerminal:
        command = [*target.command(installed(target.variant))[:-1], "chat"]
        given = {**target.provider(provider.origin), **variables}
        folder = tmp_path_factory.mktemp("home")
        started.append(PseudoTerminal([*prefix, *command], folder, given))
        started[-1].expect(PROMPT)
        return started[-1]

    yield talk
    for terminal in started:
        terminal.close()


@pytest.fixture(scope="module")
def chat(talk: Talk) -> PseudoTerminal:
    """One conversation; who uses it leaves it at an empty prompt."""
    return talk()


def without_framework(variant: str, *words: str) -> list[str]:
    project = installed(variant)
    if variant.endswith("-python"):
        code = f"{NO_FRAMEWORK['python']}; cli({[*words]})"
        return [str(project / ".venv" / "bin" / "python"), "-c", code]
    hook = f"data:text/javascript,{NO_FRAMEWORK['typescript']}"
    return [str(NODE), "--import", hook, str(project / "src" / "main.ts"), *words]


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_first_line_and_the_help_come_before_any_framework(
    variant: str, tmp_path: Path
) -> None:
    terminal = PseudoTerminal(without_framework(variant, "chat"), tmp_path, {})
    first = "my-agent, offline model. /help lists the commands; Ctrl-D leaves."
    assert terminal.expect(re.escape(first)) == first
    assert terminal.exit_code() == 1, "the framework is missing"
    assert re.search("no framework|ModuleNotFoundError", terminal.seen)
    terminal.close()
    command = without_framework(variant, "--help")
    shown = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "chat" in shown.stdout


def test_who_speaks_is_seen(chat: PseudoTerminal) -> None:
    assert "\x1b[1mmy-agent, test-model\x1b[0m. /help lists" in chat.seen
    assert "\x1b[1m>\x1b[0m " in chat.seen
    chat.type(f"Hello.{ENTER}")
    assert "You said: Hello." in chat.expect(PROMPT)


def test_a_call_of_a_tool_is_one_dim_line(chat: PseudoTerminal, provider: Provider) -> None:
    call = Call("word_count", {"text": "a \x1b[2J\n b" + "c" * 99})
    wrong = Call("word_count", {"wrong": 1})
    provider.script("Count.", ["Let me see.", call], [wrong], ["Three."])
    chat.type(f"Count.{ENTER}")
    shown = chat.expect(PROMPT).replace("\r", "\n").splitlines()
    assert "Let me see." in shown
    good, bad = (line for line in shown if line.startswith("word_count "))
    given = '{"text":"a \\u001b[2J\\n b' + "c" * 60
    assert good == f"word_count {given[:59]}… -> 3"
    assert bad.startswith('word_count {"wrong":1} failed: ')
    assert len(bad) <= 25 + 80
    assert "Three." in shown
    assert f"\x1b[2m{good}\x1b[0m" in chat.seen


def test_a_spinner_turns_until_the_first_text(chat: PseudoTerminal, provider: Provider) -> None:
    gate = threading.Event()
    provider.script("Wait.", [Hold(gate), "Done."])
    chat.type(f"Wait.{ENTER}")
    chat.expect(r"\|\r/\r-\r\\\r\|")
    gate.set()
    chat.expect(PROMPT)
    assert "\r\x1b[KDone." in chat.seen


def test_an_error_stands_on_its_own_line(chat: PseudoTerminal, provider: Provider) -> None:
    provider.script("Half.", ["Half a reply", CUT])
    chat.type(f"Half.{ENTER}")
    shown = chat.expect(PROMPT)
    assert re.search(r"Half a reply\r\nThe model failed; this turn was not kept\. \(", shown)


def test_ctrl_c_ends_the_turn_and_the_conversation_goes_on(
    chat: PseudoTerminal, provider: Provider
) -> None:
    endless: list[Step] = [["Well, ", HANG], [HANG]]
    for steps in endless:
        provider.script("Endless.", steps)
        chat.type(f"Endless.{ENTER}")
        chat.expect("Well, " if len(steps) > 1 else r"/\r-")
        chat.type(CTRL_C)
        shown = chat.expect(PROMPT)
        assert re.search(f"[\r\n]{KEPT_NOTHING}\r\n", shown), shown
    chat.type(f"Still there?{ENTER}")
    chat.expect(PROMPT)
    prompts = [text for role, text, *_ in provider.calls_for("Still there?")[-1].history]
    assert "Endless." not in prompts


def test_ctrl_c_clears_a_half_typed_line(chat: PseudoTerminal) -> None:
    for _ in range(2):
        chat.type("Half typed")
        chat.expect("Half typed$")
        chat.type(CTRL_C)
        chat.expect(r"\n> $")
    chat.type(f"Whole.{ENTER}")
    assert "You said: Whole." in chat.expect(PROMPT)


def test_the_arrows_edit_and_repeat(chat: PseudoTerminal) -> None:
    chat.type(f"Helo.{LEFT}{LEFT}l{ENTER}")
    assert "You said: Hello." in chat.expect(PROMPT)
    chat.type(f"{UP}{ENTER}")
    assert "You said: Hello." in chat.expect(PROMPT)


def test_a_paste_is_one_prompt(chat: PseudoTerminal, provider: Provider) -> None:
    assert "\x1b[?2004h" in chat.seen
    before = len(provider.calls)
    chat.type("Read: \x1b[200~one\rtwo\rthree\x1b[201~")
    chat.expect("three")
    chat.type(f" and four{ENTER}")
    chat.expect(PROMPT)
    assert [one.prompt for one in provider.calls[before:]] == ["Read: one\ntwo\nthree and four"]


def test_what_is_typed_during_a_reply_is_the_next_prompt(
    chat: PseudoTerminal, provider: Provider
) -> None:
    gate = threading.Event()
    provider.script("First.", ["Well, ", Hold(gate), "done."])
    chat.type(f"First.{ENTER}")
    chat.expect("Well, ")
    chat.type(f"Second.{ENTER}")
    gate.set()
    chat.expect("You said: Second.")
    chat.expect(PROMPT)


def test_commands_never_go_to_the_model(chat: PseudoTerminal, provider: Provider) -> None:
    chat.type(f"/session{ENTER}")
    first = re.search(r"This is session ([0-9a-f-]{36})\.", chat.expect(PROMPT))
    before = len(provider.calls)
    chat.type(f"{ENTER}")
    chat.expect(PROMPT)
    chat.type(f"  {ENTER}")
    chat.expect(PROMPT)
    chat.type(f"/help{ENTER}")
    shown = chat.expect(PROMPT)
    assert all(name in shown for name in ("/new", "/session", "/quit", "Ctrl-C", "Ctrl-D"))
    chat.type(f"/nonsense{ENTER}")
    assert "No such command: /help lists them." in chat.expect(PROMPT)
    chat.type(f"/new{ENTER}")
    new = re.search(r"Started session ([0-9a-f-]{36}) \(previous: (\S+)\)\.", chat.expect(PROMPT))
    assert first
    assert new
    assert new[2] == first[1] != new[1]
    assert len(provider.calls) == before
    chat.type(f"/etc/hosts has what?{ENTER}")
    assert "You said: /etc/hosts has what?" in chat.expect(PROMPT)
    assert len(provider.calls[-1].history) <= 2, "the new session is empty"


@pytest.mark.parametrize("keys", [CTRL_C, CTRL_D, f"/quit{ENTER}", f"exit{ENTER}", f"quit{ENTER}"])
def test_it_is_left_by(keys: str, talk: Talk) -> None:
    terminal = talk(NO_COLOR="1")
    terminal.type(keys)
    assert terminal.exit_code() == 0
    assert re.search(r"This was session [0-9a-f-]{36}\. Nothing was added to it\.", terminal.seen)
    assert not re.search("\x1b\\[[0-9;]+m", terminal.seen), "NO_COLOR is set"


def test_python_without_gnu_readline_takes_a_paste_and_ctrl_c(
    provider: Provider, tmp_path: Path
) -> None:
    target = next(one for one in TARGETS if one.name == "strands-python")
    python = installed(target.variant) / ".venv" / "bin" / "python"
    code = "import sys; sys.modules['readline'] = None; from app.main import cli; cli(['chat'])"
    variables = target.provider(provider.origin)
    terminal = PseudoTerminal([str(python), "-c", code], tmp_path, variables)
    terminal.expect(PROMPT)
    terminal.type("four\rfive\rsix\r")
    terminal.expect("You said: ")
    terminal.expect(PROMPT)
    assert len(provider.calls_for("four\nfive\nsix")) == 1
    terminal.type(CTRL_C)
    terminal.expect(r"\n> $")
    terminal.type(CTRL_C)
    assert terminal.exit_code() == 0
    terminal.close()


class Served:
    """`serve --reload` of a project of its own; `log` is what it has written."""

    def __init__(self, target: Target, project: Path, variables: dict[str, str]) -> None:
        self.log = ""
        self.process = subprocess.Popen(
            [*target.command(project), "--reload"],
            cwd=project,
            env={"PATH": os.environ["PATH"], "HOST": "127.0.0.1", **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self.log += line

    def expect(self, text: str, count: int = 1) -> None:
        deadline = time.monotonic() + PATIENCE
        while self.log.count(text) < count:
            assert time.monotonic() < deadline, f"there was never {text!r}:\n{self.log}"
            time.sleep(0.05)


# What a word count is made of in the agent of each target, and nothing in its place.
NOTHING = {"text.match(/\\S+/g)?.length ?? 0": "undefined", "len(text.split())": "None"}


@pytest.mark.parametrize("name", VARIANTS)
def test_a_tool_that_returns_nothing_is_shown_and_fails_no_turn(name: str, tmp_path: Path) -> None:
    project = tmp_path / "my-agent"
    shutil.copytree(rendered(name), project)
    link_environment(project, environment(name))
    is_python = name.endswith("-python")
    agent = project / ("src/app/agent.py" if is_python else "src/agent.ts")
    text = agent.read_text()
    for something, nothing in NOTHING.items():
        text = text.replace(something, nothing)
    assert text != agent.read_text()
    agent.write_text(text)
    python = str(project / ".venv" / "bin" / "python")
    chat = "from app.main import cli; cli(['chat'])"
    command = [python, "-c", chat] if is_python else [str(NODE), "src/main.ts", "chat"]
    terminal = PseudoTerminal(command, project, {})
    try:
        terminal.expect(PROMPT)
        terminal.type(f"use word_count: one{ENTER}")
        shown = terminal.expect(PROMPT)
        assert re.search(r"word_count \{.*\} ->", shown), shown
        assert "The tool answered" in shown
    finally:
        terminal.close()


Reloading = tuple[Served, Path, int]


@pytest.fixture
def served(
    target: Target, provider: Provider, tmp_path: Path
) -> Iterator[tuple[Served, Path, int]]:
    project = tmp_path / "my-agent"
    shutil.copytree(rendered(target.variant), project)
    link_environment(project, environment(target_of(target.variant)))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    variables = {
        **target.provider(provider.origin),
        "PORT": str(port),
        "SHUTDOWN_GRACE_SECONDS": "600",
        "TMPDIR": str(tmp_path / "tmp"),
    }
    (tmp_path / "tmp").mkdir()
    served = Served(target, project, variables)
    yield served, project, port
    served.process.terminate()
    try:
        served.process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        served.process.kill()
        raise


def test_a_change_restarts_the_server_when_its_turns_have_ended_and_its_sessions_go_on(
    target: Target, served: Reloading, provider: Provider
) -> None:
    server, project, port = served
    source = "src/app/agent.py" if "python" in target.name else "src/agent.ts"
    gate = threading.Event()
    provider.script("Slowly.", ["Well, ", Hold(gate), "done."])
    server.expect("Listening on ")
    turn = Exchange(("127.0.0.1", port))
    turn.send("POST", "/invocations", {SESSION: "s"}, {"prompt": "Slowly."})
    assert turn.event() == ("message", "Well, ")
    text = (project / source).read_text()
    (project / source).write_text(text.replace("You are", "You really are"))
    server.expect(f"{source} has changed: the server restarts when its turns have ended.")
    assert not turn.answered(within=1), "the turn still runs"
    gate.set()
    assert turn.reply().events[0] == ("message", "done.")
    server.expect("Listening on ", 2)

    (project / source).write_text(")")
    server.expect("has changed", 2)
    server.expect("SyntaxError")
    (project / source).write_text(text)
    server.expect("Listening on ", 3)
    (project / ".env").write_text("MAX_PROMPT_CHARS=3\n")
    server.expect(".env has changed")
    server.expect("Listening on ", 4)
    again = Exchange(("127.0.0.1", port))
    again.send("POST", "/invocations", {}, {"prompt": "1234"})
    assert again.reply().status == 400
    again = Exchange(("127.0.0.1", port))
    again.send("POST", "/invocations", {SESSION: "s"}, {"prompt": "So?"})
    assert again.reply().turn == 2, "also after a process that did not even start"
    call = provider.calls_for("So?")[-1]
    assert call.history[:2] == [("user", "Slowly."), ("assistant", "Well, done.")]
    names = {path.name for path in (project.parent / "tmp").iterdir()}
    assert names <= {"node-compile-cache"}, "sessions are in no file that has a name"
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(PATIENCE) == 0
    with pytest.raises(ConnectionRefusedError):
        Exchange(("127.0.0.1", port))
