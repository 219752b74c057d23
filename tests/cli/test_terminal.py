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
from contextlib import ExitStack
from pathlib import Path

import pytest

from hooks.variants import TARGETS as VARIANTS
from tests.conformance.client import SESSION, Exchange
from tests.conformance.prompt_cache import Usage
from tests.conformance.provider import PATIENCE, Provider
from tests.conformance.steps import CUT, HANG, Call, Hold, Step, Think
from tests.conformance.targets import SHARED, TARGETS, Target, with_own_agent
from tests.installed import (
    NODE,
    environment,
    installed,
    link_environment,
    rendered,
    target_of,
)
from tests.stores.forks import start
from tests.support.pseudo_terminal import CTRL_C, CTRL_D, ENTER, LEFT, PROMPT, UP, PseudoTerminal

pytestmark = pytest.mark.slow

USUAL = [
    pytest.param(target, id=target.name, marks=[] if target.name in SHARED else pytest.mark.full)
    for target in TARGETS
]
OFF = r"\x1b\[(?:0|22|39)m"  # what ends a style, in both languages
STYLE = re.compile(r"\x1b\[(?!0?m)[0-9;]+m")  # more than a reset
KEPT_NOTHING = "Interrupted: this turn was not saved."
NO_FRAMEWORK = {
    "python": """
import sys
sys.modules |= {'ai': None, 'strands': None}
from my_agent.main import cli
""",
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
        code = f"{NO_FRAMEWORK['python']}cli({[*words]})"
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


@pytest.mark.full
def test_the_speaker_is_visible(chat: PseudoTerminal) -> None:
    assert re.search(rf"\x1b\[1mmy-agent, test-model{OFF}\. /help lists", chat.seen)
    assert re.search(r"\x1b\[(0;)?1m>", chat.seen)
    chat.type(f"Hello.{ENTER}")
    assert "You said: Hello." in chat.expect(PROMPT)


@pytest.mark.full
def test_the_words_of_the_help_are_whole_in_40_columns(talk: Talk) -> None:
    chat = talk()
    chat.resize(40)
    chat.type(f"/help{ENTER}")
    lines = re.split("[\r\n]+", chat.expect(r"\bempty\.\r\n"))
    assert max(map(len, lines)) <= 40
    words = "Ctrl-C cancels the running turn, clears the line, or leaves if the line is empty."
    assert words in " ".join(" ".join(lines).split())


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
    assert re.search(rf"\x1b\[2m{re.escape(good)}{OFF}", chat.seen)


@pytest.mark.full
def test_reasoning_is_dim_and_above_the_reply(talk: Talk, provider: Provider) -> None:
    words = "several " * 30
    step: Step = [Think("I **wonder**.\n\nSo "), Think(words), "It is ", "**two**."]
    chat = talk()
    chat.resize(40)
    provider.script("Think.", step)
    chat.type(f"Think.{ENTER}")
    chat.expect(r"It is two\.\r\n")
    chat.expect(PROMPT)
    lines = chat.lines[chat.lines.index("I **wonder**.") : -2]
    assert max(map(len, lines)) <= 40
    assert " ".join(lines) == f"I **wonder**. So {words}It is two."
    assert re.search(rf"\x1b\[2mI \*\*wonder\*\*\.{OFF}\r\n", chat.seen)
    between = re.search(
        rf"several ?{OFF}(\r\n(?:(?!several).)*?)It is \x1b\[1mtwo{OFF}", chat.seen, re.DOTALL
    )
    assert between, chat.seen
    assert between[1].count("\r\n") == 2, "a blank line"
    quiet = talk(REASONING="0")
    provider.script("Think.", step)
    quiet.type(f"Think.{ENTER}")
    assert "wonder" not in quiet.expect(PROMPT)


def test_a_spinner_turns_until_the_first_text(chat: PseudoTerminal, provider: Provider) -> None:
    gate = threading.Event()
    provider.script("Wait.", [Hold(gate), "Done."])
    chat.type(f"Wait.{ENTER}")
    chat.expect(r"\|\r.*/\r.*-\r.*\\\r.*\|")
    gate.set()
    chat.expect(PROMPT)
    assert chat.lines[-3] == "Done."


def test_an_error_stands_on_its_own_line(chat: PseudoTerminal, provider: Provider) -> None:
    provider.script("Half.", ["Half a reply", CUT])
    chat.type(f"Half.{ENTER}")
    chat.expect(PROMPT)
    failure = chat.lines[chat.lines.index("Half a reply") + 1]
    assert failure.startswith("The model failed; this turn was not saved. (")


def test_ctrl_c_ends_the_turn_and_the_conversation_goes_on(
    chat: PseudoTerminal, provider: Provider
) -> None:
    endless: list[Step] = [["Well, ", HANG], [HANG]]
    for steps in endless:
        provider.script("Endless.", steps)
        chat.type(f"Endless.{ENTER}")
        chat.expect("Well," if len(steps) > 1 else r"/\r-")
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
        chat.expect(rf"\n{PROMPT}")
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


def test_text_typed_during_a_reply_is_the_next_prompt(
    chat: PseudoTerminal, provider: Provider
) -> None:
    gate = threading.Event()
    provider.script("First.", ["Well, ", Hold(gate), "done."])
    chat.type(f"First.{ENTER}")
    chat.expect("Well,")
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
    assert "Unknown command. Type /help for a list." in chat.expect(PROMPT)
    chat.type(f"/new{ENTER}")
    new = re.search(r"Started session ([0-9a-f-]{36}) \(previous: (\S+)\)\.", chat.expect(PROMPT))
    assert first
    assert new
    assert new[2] == first[1] != new[1]
    assert len(provider.calls) == before
    chat.type(f"/etc/hosts has what?{ENTER}")
    assert "You said: /etc/hosts has what?" in chat.expect(PROMPT)
    assert len(provider.calls[-1].history) <= 2, "the new session is empty"


@pytest.mark.full
@pytest.mark.parametrize("keys", [CTRL_C, CTRL_D, f"/quit{ENTER}", f"exit{ENTER}", f"quit{ENTER}"])
def test_keys_and_commands_end_the_chat(keys: str, talk: Talk) -> None:
    terminal = talk(NO_COLOR="1")
    terminal.type(keys)
    assert terminal.exit_code() == 0
    assert re.search(r"This was session [0-9a-f-]{36}\. Nothing was added to it\.", terminal.seen)
    assert not STYLE.search(terminal.seen), "NO_COLOR is set"


@pytest.mark.parametrize(
    "keys",
    [
        pytest.param(CTRL_C * 2, id="C-C"),
        pytest.param(CTRL_D, id="D", marks=pytest.mark.full),
        pytest.param(CTRL_D + CTRL_C, id="D-C", marks=pytest.mark.full),
    ],
)
def test_it_can_be_left_during_a_turn(
    keys: str, target: Target, talk: Talk, provider: Provider
) -> None:
    gate = threading.Event()
    provider.script("Leave.", ["Well, ", Hold(gate), "bye."])
    terminal = talk()
    terminal.type(f"Leave.{ENTER}")
    terminal.expect("Well,")
    for key in keys:
        terminal.type(key)
    gate.set()
    if CTRL_D in keys and not target.is_node:  # Python takes no such key before its prompt
        terminal.expect(PROMPT)
        terminal.type(CTRL_D)
    assert terminal.exit_code() == 0, terminal.seen
    assert "This was session" in terminal.seen


REPLY = ["**Bo", "ld** and `co", "de`:\n- one ", "two three\n"]


def test_markdown_is_shown_and_its_words_are_wrapped(
    target: Target, talk: Talk, provider: Provider
) -> None:
    chat, narrow, noticed = talk(), threading.Event(), threading.Event()
    provider.script("Show.", [*REPLY, Hold(narrow), "- a\n", Hold(noticed), "- four five six"])
    chat.resize(20)
    chat.type(f"Show.{ENTER}")
    chat.expect("one two three")
    assert re.search(rf"\x1b\[1mBold{OFF} and \x1b\[36mcode{OFF}:", chat.seen)
    chat.resize(12)
    narrow.set()
    chat.expect("• a")  # Node reads a signal behind what came at the same time
    noticed.set()
    chat.expect(PROMPT)
    seen = [line.strip() for line in chat.lines]
    # The list is one block, which is shown anew.
    expected = ["Bold and code:", "• one two", "three", "• a", "• four five", "six"]
    at = seen.index(expected[0])
    assert seen[at : at + len(expected)] == expected
    chat = talk(NO_COLOR="1", XDG_STATE_HOME="/dev/null")  # where no history can be
    provider.script("Show.", REPLY)
    chat.resize(14)
    chat.type(f"Show.{ENTER}")
    chat.expect("three")
    chat.expect(PROMPT)
    seen = [line.strip() for line in chat.lines]
    plain = ["**Bold** and", "`code`:", "- one two", "three"]
    if target.is_node:
        plain = ["Bold and code:", "• one two", "three"]
    at = seen.index(plain[0])
    assert seen[at : at + len(plain)] == plain
    assert not STYLE.search(chat.seen)
    chat = talk(TERM="dumb")
    provider.script("Show.", REPLY)
    chat.resize(14)
    chat.type(f"Show.{ENTER}")
    shown = chat.expect("three\r\n\r\n")
    assert shown.endswith("".join(REPLY).replace("\n", "\r\n") + "\r\n")


def test_a_dim_line_shows_the_cost_of_a_turn(chat: PseudoTerminal, provider: Provider) -> None:
    provider.usage = Usage(200, 1000)
    try:
        chat.type(f"Cost?{ENTER}")
        chat.expect(PROMPT)
    finally:
        provider.usage = Usage()
    form = rf"\x1b\[2m1,200 tokens in \(1,000 cached\), 1 out, \d+\.\d s{OFF}\r\n"
    assert re.search(form, chat.seen)


def test_commands_show_the_model_the_tools_and_the_conversation(talk: Talk) -> None:
    chat = talk()
    chat.type(f"/history{ENTER}")
    assert "None.\r\n" in chat.expect(PROMPT)
    chat.type(f"What is **this**?{ENTER}")
    chat.expect(PROMPT)
    chat.type(f"/model{ENTER}")
    assert re.search(r"Model: test-model, contacts http://127\.0\.0\.1:\d+", chat.expect(PROMPT))
    chat.type(f"/tools{ENTER}")
    chat.expect(PROMPT)
    assert chat.lines[-2] == "word_count: Count the words of a text."
    chat.type(f"/history{ENTER}")
    chat.expect(PROMPT)
    said = ["user: What is **this**?", "assistant: You said: What is **this**?"]
    assert chat.lines[-3:-1] == said


@pytest.mark.full
def test_arrow_up_recalls_prompts_of_earlier_conversations(
    target: Target, talk: Talk, tmp_path: Path
) -> None:
    history = tmp_path / "my-agent" / "chat_history"
    first, other = (talk(XDG_STATE_HOME=str(tmp_path)) for _ in range(2))
    for chat, prompt in ((first, "One."), (other, "Two."), (first, "One."), (other, "  ")):
        chat.type(f"{prompt}{ENTER}")
        chat.expect(PROMPT)
    first.type(f"\x1b[200~a pasted\rtext\x1b[201~{ENTER}")
    first.expect(PROMPT)
    assert stored(history) == ["One.", "Two."]
    assert history.stat().st_mode & 0o777 == 0o600
    mark = "" if target.is_node else "# 2026-01-01\n+"
    old = "".join(f"{mark}\x1b[2Jold {number} \x00\n" for number in range(100_000))
    history.write_bytes(f"{old}{mark}One.\n{mark}Tw".encode() + b"\xff.\n")
    later = talk(XDG_STATE_HOME=str(tmp_path))
    assert history.stat().st_size <= 1 << 20
    later.type(f"{UP}{UP}{ENTER}")
    assert "You said: One." in later.expect(PROMPT)
    later.type(UP * 4)
    later.expect("old 99999")
    assert "\x1b[2J" not in later.seen


def stored(history: Path) -> list[str]:
    """The prompts of a history; `prompt_toolkit` writes a mark before them, and their times."""
    lines = [line for line in history.read_text().splitlines() if line and line[0] != "#"]
    return [line.removeprefix("+") for line in lines]


@pytest.mark.full
def test_an_answer_about_a_tool_is_no_prompt_of_the_history(
    target: Target, provider: Provider, tmp_path: Path
) -> None:
    asking = with_own_agent(target, approval=True)
    command = [*asking.command(asking.project())[:-1], "chat"]
    variables = {**asking.provider(provider.origin), "HOME": str(tmp_path)}
    call = Call("delete_order", {"order_id": "7"})
    provider.script("Delete.", ["I delete.", call], ["Deleted."])
    chat = PseudoTerminal(command, tmp_path, variables)
    chat.expect(PROMPT)
    chat.type(f"Delete.{ENTER}")
    chat.expect(r"Run delete_order .*\? \[y/N/reason\][ \b]*$")
    question = 'Run delete_order {"order_id":"7"}? [y/N/reason]'
    assert chat.lines[-2:] == ["I delete.", question]
    chat.type(f"y{ENTER}")
    chat.expect(PROMPT)
    assert chat.lines[-3] == "Deleted."
    assert chat.lines[-2].startswith("6 tokens in, 2 out")
    chat.type(f"{UP}")
    chat.expect("Delete.$")
    assert stored(tmp_path / "my-agent" / "chat_history") == ["Delete."]
    provider.script("Leave.", ["I delete.", call])
    chat.type(CTRL_C)  # clears what the arrow has brought back
    chat.expect(rf"\n{PROMPT}")
    chat.type(f"Leave.{ENTER}")
    chat.expect(r"\? \[y/N/reason\][ \b]*$")
    chat.type(CTRL_D)
    chat.type(CTRL_D)  # Python asks for another prompt
    assert chat.exit_code() == 0, chat.seen
    assert "This was session" in chat.seen
    chat.close()
    provider.script("Delete.", ["I delete.", call])
    ended = subprocess.run(
        [*command, "Delete."], env=variables, capture_output=True, text=True, timeout=PATIENCE
    )
    assert (ended.returncode, ended.stdout) == (1, "I delete.\n")
    asked = 'Run delete_order {"order_id":"7"}? [y/N/reason]'
    assert (
        f"{asked} (no user can answer this question: run `chat` without a prompt argument)\n"
        in ended.stderr
    )


HIDDEN = "7\u202e\u2066\u200b\x07\x1b[2J\n\u2028\U000e0041 Run read_order {}? [y/N/reason] y"
SHOWN = "7\\u202e\\u2066\\u200b\\u0007\\u001b[2J\\n\\u2028\\udb40\\udc41"
LONG = f"{'x' * 5000} {'Run read_order {}?' * 20}"


def test_whoever_is_asked_sees_all_that_runs(
    target: Target, provider: Provider, tmp_path: Path
) -> None:
    asking = with_own_agent(target, approval=True)
    command = [*asking.command(asking.project())[:-1], "chat"]
    variables = {**asking.provider(provider.origin), "HOME": str(tmp_path)}
    provider.script("Hide.", [Call("delete_order", {"order_id": HIDDEN})], ["Done."])
    provider.script("Large.", [Call("pay", raw='{"amount":9007199254740993}')], ["Done."])
    provider.script("Long.", [Call("delete_order", {"order_id": LONG})], ["Done."])
    chat = PseudoTerminal(command, tmp_path, variables)
    chat.expect(PROMPT)
    chat.type(f"Hide.{ENTER}")
    question = chat.expect(r"y\"\}\? \[y/N/reason\][ \b]*$")
    assert f'Run delete_order {{"order_id":"{SHOWN} Run read_order {{}}?' in shown(question)
    assert "\x07" not in question
    assert "\x1b[2J" not in question
    chat.type(f"y{ENTER}")
    line = chat.expect(PROMPT)
    assert f'delete_order {{"order_id":"{SHOWN}'[:50] in shown(line)
    chat.type(f"Large.{ENTER}")
    digits = "9007199254740992" if asking.is_node else "9007199254740993"
    assert f'Run pay {{"amount":{digits}' in shown(chat.expect(r"\[y/N/reason\][ \b]*$"))
    chat.type(f"y{ENTER}")
    chat.expect(PROMPT)
    chat.type(f"Long.{ENTER}")
    asked = chat.expect(r"\nRun delete_order with these 5,376 characters\? \[y/N/reason\][ \b]*$")
    assert f'Run delete_order {{"order_id":"{LONG}"}}\r\n' in asked
    chat.type(f"n{ENTER}")
    chat.expect(PROMPT)
    chat.close()
    runs = (tmp_path / "runs").read_text()
    assert f"pay [{digits}," in runs
    assert HIDDEN in runs
    assert "xxx" not in runs


def shown(text: str) -> str:
    """A text without the line ends where a line editor wraps it."""
    return re.sub(r" \r|\r\n", "", text)


def test_one_question_prints_the_reply_and_nothing_else(
    target: Target, provider: Provider, tmp_path: Path
) -> None:
    command = [*target.command(installed(target.variant))[:-1], "chat"]
    variables = target.provider(provider.origin)
    never, _ = os.pipe()  # nothing is read from there

    def ask(*words: str, **more: str) -> tuple[int, str, str]:
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        own = {"PATH": os.environ["PATH"], **variables, **more}
        with os.fdopen(os.dup(never)) as stdin:
            run = start([*command, *words], cwd=tmp_path, env=own, stdin=stdin, **streams)
        shown, error = run.communicate(timeout=PATIENCE)
        return run.wait(), shown, error

    assert ask("Hello.") == (0, "You said: Hello.\n", "")
    assert ask("--", "-h\nor quit?") == (0, "You said: -h\nor quit?\n", "")
    provider.script("Show.", REPLY, endless=True)
    assert ask("Show.", "--session", "s") == (0, "".join(REPLY), "")
    provider.script("Think.", [Think("I wonder."), "Yes."])
    assert ask("Think.") == (0, "Yes.\n", "")
    provider.script("Half.", ["Half a reply", CUT])
    code, shown, error = ask("Half.")
    assert (code, shown) == (1, "Half a reply\n")
    assert error.startswith("The model failed; this turn was not saved. (")
    for wrong in (" \n", "1234"):
        code, shown, error = ask(wrong, MAX_PROMPT_CHARS="3")
        assert (code, shown) == (1, "")
        assert error.startswith("Send a prompt that is not blank and has at most 3 characters.")
    code, shown, error = ask("Two", "words")
    assert (code, shown) == (2, "")
    code, shown, error = ask("Hello.", MODEL="")
    assert code == 0
    assert "MODEL" not in shown
    assert "MODEL is not set" in error
    terminal = PseudoTerminal([*command, "Show."], tmp_path, variables)
    assert terminal.exit_code() == 0
    assert [line.strip() for line in terminal.lines] == ["Bold and code:", "• one two three"]
    assert re.search(rf"\x1b\[1mBold{OFF} and \x1b\[36mcode{OFF}:", terminal.seen)
    terminal.close()
    provider.script("Wait.", ["Well, then ", HANG])
    terminal = PseudoTerminal([*command, "Wait."], tmp_path, variables)
    terminal.expect("Well,")
    terminal.type(CTRL_C)
    assert terminal.exit_code() == 1
    terminal.close()


LOGS_LATER = {
    "strands-python": '''
import logging
import threading
import time
from pathlib import Path

from strands import tool


def log() -> None:
    while not Path("now").exists():
        time.sleep(0.02)
    logging.getLogger().warning("Late.")
    Path("logged").touch()


@tool
def later() -> str:
    """Log something."""
    logging.getLogger().warning("Early.")
    threading.Thread(target=log, daemon=True).start()
    return "soon"


SYSTEM_PROMPT, TOOLS = "", [later]
''',
    "vercel-typescript": """
import { existsSync, writeFileSync } from 'node:fs'
import { tool } from 'ai'
import { z } from 'zod'
import { log } from './harness/log.ts'

const later = tool({
  description: 'Log something.',
  inputSchema: z.object({}),
  execute: () => {
    log('WARNING', 'Early.')
    const timer = setInterval(() => {
      if (!existsSync('now')) return
      clearInterval(timer)
      log('WARNING', 'Late.')
      writeFileSync('logged', '')
    }, 20)
    return 'soon'
  },
})
export const [SYSTEM_PROMPT, TOOLS] = ['', { later }]
""",
}


def own_project(target: Target, folder: Path) -> tuple[Path, list[str]]:
    """A render that a test may change, and its command."""
    project = folder / "my-agent"
    shutil.copytree(rendered(target.variant), project)
    link_environment(project, environment(target_of(target.variant)))
    if target.is_node:
        return project, [str(NODE), "src/main.ts"]
    python = str(project / ".venv" / "bin" / "python")
    return project, [python, "-c", "from my_agent.main import cli; cli()"]


@pytest.mark.parametrize("name", LOGS_LATER)
def test_a_line_of_the_log_never_cuts_into_a_reply(
    name: str, provider: Provider, tmp_path: Path
) -> None:
    target = next(target for target in TARGETS if target.name == name)
    project, command = own_project(target, tmp_path)
    next(project.glob("src/**/agent.*")).write_text(LOGS_LATER[name])
    gate = threading.Event()
    provider.script("Go.", ["I ", Call("later", {})], ["The reply ", Hold(gate), "goes on."])
    chat = PseudoTerminal([*command, "chat"], project, target.provider(provider.origin))
    try:
        chat.expect(PROMPT)
        chat.type(f"Go.{ENTER}")
        chat.expect("The reply")
        (project / "now").touch()
        deadline = time.monotonic() + PATIENCE
        while not (project / "logged").exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        gate.set()
        shown = chat.expect(PROMPT)
    finally:
        chat.close()
    found = [line[-20:] for line in chat.lines if re.search(r"WARNING|The reply|soon|^I", line)]
    assert found == ["I", found[1], "later {} -> soon", "The reply goes on.", found[-1]]
    assert found[1].endswith("WARNING Early.")
    assert found[-1].endswith("WARNING Late.")
    assert "tokens" in shown


TICKS = {
    "strands-python": """
import asyncio
from dataclasses import dataclass
from pathlib import Path

from .harness import Capability, CoreSettings


@dataclass(frozen=True)
class OwnSettings(CoreSettings):
    pass


class Ticks(Capability):
    async def open(self, *_: object) -> None:
        self.job = asyncio.create_task(self.tick())

    async def tick(self) -> None:
        for number in range(1_000_000):
            Path("ticks").write_text("." * number)
            await asyncio.sleep(0.02)


OWN_CAPABILITIES = [Ticks]
""",
    "vercel-typescript": """
import { writeFileSync } from 'node:fs'
import { Capability } from './harness/index.ts'

class Ticks extends Capability {
  override async open(): Promise<void> {
    let number = 0
    setInterval(() => writeFileSync('ticks', '.'.repeat(number++)), 20)
  }
}
export const OWN_SETTINGS = {}
export const OWN_CAPABILITIES = [Ticks]
""",
}


@pytest.mark.parametrize("is_piped", [True, False], ids=["a pipe", "a terminal"])
@pytest.mark.parametrize("name", TICKS)
def test_a_task_of_a_capability_runs_while_the_chat_waits_for_a_prompt(
    name: str, is_piped: bool, tmp_path: Path
) -> None:
    target = next(target for target in TARGETS if target.name == name)
    project, command = own_project(target, tmp_path)
    next(project.glob("src/**/own_capabilities.*")).write_text(TICKS[name])
    ticks = project / "ticks"
    with ExitStack() as stack:
        if is_piped:
            chat = subprocess.Popen([*command, "chat"], cwd=project, stdin=subprocess.PIPE)
            stack.callback(chat.communicate)
        else:
            terminal = PseudoTerminal([*command, "chat"], project, {})
            stack.callback(terminal.close)
            terminal.expect(PROMPT)
        deadline = time.monotonic() + PATIENCE
        while not ticks.exists() or ticks.stat().st_size < 5:
            assert time.monotonic() < deadline, "the task does not run"
            time.sleep(0.02)


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
    agent = project / ("src/my_agent/agent.py" if is_python else "src/agent.ts")
    text = agent.read_text()
    for something, nothing in NOTHING.items():
        text = text.replace(something, nothing)
    assert text != agent.read_text()
    agent.write_text(text)
    python = str(project / ".venv" / "bin" / "python")
    chat = "from my_agent.main import cli; cli(['chat'])"
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


@pytest.mark.full
def test_a_change_restarts_the_server_when_its_turns_have_ended_and_its_sessions_go_on(
    target: Target, served: Reloading, provider: Provider
) -> None:
    server, project, port = served
    source = "src/my_agent/agent.py" if "python" in target.name else "src/agent.ts"
    gate = threading.Event()
    provider.script("Slowly.", ["Well, ", Hold(gate), "done."])
    server.expect("Listening on ")
    turn = Exchange(("127.0.0.1", port))
    turn.send("POST", "/invocations", {SESSION: "s"}, {"prompt": "Slowly."})
    assert turn.event() == ("message", "Well, ")
    text = (project / source).read_text()
    (project / source).write_text(text.replace("You are", "You really are"))
    server.expect(f"{source} changed: the server restarts after its running turns.")
    assert not turn.answered(within=1), "the turn still runs"
    gate.set()
    assert turn.reply().events[0] == ("message", "done.")
    server.expect("Listening on ", 2)

    (project / source).write_text(")")
    server.expect(" changed: ", 2)
    server.expect("SyntaxError")
    (project / source).write_text(text)
    server.expect("Listening on ", 3)
    (project / ".env").write_text("MAX_PROMPT_CHARS=3\n")
    server.expect(".env changed: ")
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


@pytest.mark.full
def test_ctrl_c_that_no_terminal_has_sent_ends_the_server_when_it_is_repeated(
    served: Reloading,
) -> None:
    server, _, port = served
    server.expect("Listening on ")
    server.process.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        server.process.wait(1)
    server.process.send_signal(signal.SIGINT)
    assert server.process.wait(PATIENCE) == 0
    with pytest.raises(ConnectionRefusedError):
        Exchange(("127.0.0.1", port))
