"""`chat` in Python: Markdown in a terminal, the line editor, and when their libraries load."""

import json
import random
import re
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.provider import Provider
from tests.conformance.steps import Hold, Step
from tests.conformance.targets import TARGETS, Target
from tests.installed import installed
from tests.support.pseudo_terminal import CTRL_C, ENTER, PROMPT, PseudoTerminal

pytestmark = pytest.mark.slow

TARGET = next(target for target in TARGETS if target.name == "strands-python")
SHOW = """
import io, json, sys
from rich.console import Console
from my_agent.harness.terminal.terminal import Reply, find_last_block
for line in sys.stdin:
    text, width, chunks = json.loads(line)
    shown = []
    for parts in ([text], chunks):
        file, block = io.StringIO(), ""
        console = Console(file=file, width=width)
        for part in parts:
            block += part
            end = find_last_block(block)
            console.print(Reply(block[:end]), crop=False)
            block = block[end:]
        console.print(Reply(block), crop=False)
        shown.append(file.getvalue())
    print(json.dumps(shown))
"""
CODE = "x = 'a long line of code that no terminal of forty columns shows in one line'"
# A text and what a terminal of 40 columns shows of it, without blank lines and margins.
TABLE = [
    ("Some **bold words**, *slanted* and `code`.", ["Some bold words, slanted and code."]),
    ("two\nlines", ["two", "lines"]),
    ("# A **title**\ntext", ["A title", "text"]),
    ("- one\n* two\n  + three", ["• one", "• two", "• three"]),
    ("3. three\n4. four", ["3 three", "4 four"]),
    ("> said\n> so", ["▌ said", "▌ so"]),
    ("a [link](https://example.com/a_b)", ["a link (https://example.com/a_b)"]),
    ("![a cat](https://example.com/c.png)", ["a cat (https://example.com/c.png)"]),
    ("[![badge](b.svg)](https://a.example)", ["badge (b.svg) (https://a.example)"]),
    ("See [1].\n\n[1]: https://a.example", ["See [1].", "[1]: https://a.example"]),
    ("use <div> & <b>x</b> &lt;\n\n<p>y</p>", ["use <div> & <b>x</b> <", "<p>y</p>"]),
    ("~~gone~~ snake_case 2 * 3 * 4", ["gone snake_case 2 * 3 * 4"]),
    (
        "| name | price |\n|---|--:|\n| tea | 1 |\n| coffee | 12 |",
        ["name price", "─────────────", "tea 1", "coffee 12"],
    ),
    # Code is copied as it is; only in a list its lines are wrapped.
    (f"```python\n\n{CODE}\n  y\n```\nso", [CODE, "y", "so"]),
    (f"```unknown\n{CODE}\n", [CODE]),
    (f"- one:\n  ```\n  {CODE}\n  ```", ["• one:", CODE[:32], CODE[33:67], CODE[68:]]),
    # Words are wrapped whole; a long one is not cut off.
    ("- one two three four five six seven eight", ["• one two three four five six seven", "eight"]),
    (f"| a | b |\n|---|---|\n| {'0123456789' * 5} | c |", None),
    ("你好世界" * 6, ["你好世界" * 5, "你好世界"]),
]
PARTS = [
    *("**", "*", "_", "`", "```\n", "~~~\n", "# ", "- ", "1. ", "> ", "    ", "|", "|---|\n"),
    *("[", "](u)", "![", "<", ">", "<!--", "&lt;", "\\", "~~", "---\n", "===\n", "[a]: b\n"),
    *("\n", "\n", "\n", "\n\n", "  \n", " ", " ", "\t", "word", "snake_case", "2", "."),
    *("你好", "👩\u200d💻", "e\u0301"),
]


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    provider = Provider()
    yield provider
    provider.close()


@pytest.fixture(scope="module")
def chat(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PseudoTerminal]:
    command = [*TARGET.command(installed(TARGET.variant))[:-1], "chat"]
    folder = tmp_path_factory.mktemp("home")
    chat = PseudoTerminal(command, folder, TARGET.provider(provider.origin))
    chat.expect(PROMPT)
    yield chat
    chat.close()


def python() -> str:
    return str(installed(TARGET.variant) / ".venv" / "bin" / "python")


def shown(cases: list[tuple[str, int, list[str]]]) -> list[list[list[str]]]:
    """The lines of each text as a whole, and of its chunks as they come, without blank lines."""
    typed = "".join(f"{json.dumps(case)}\n" for case in cases)
    ended = subprocess.run(
        [python(), "-c", SHOW], input=typed, capture_output=True, text=True, check=True
    )
    return [[lines_of(text) for text in json.loads(line)] for line in ended.stdout.splitlines()]


def lines_of(text: str) -> list[str]:
    lines = [" ".join(line.split()) for line in text.split("\n")]
    return [line for line in lines if line]


def test_markdown_is_shown_like_this() -> None:
    found = shown([(text, 40, [*text]) for text, _ in TABLE])
    for (text, expected), (whole, in_chunks) in zip(TABLE, found, strict=True):
        assert in_chunks == whole
        if expected is None:
            assert "".join(re.findall("[0-9]", "".join(whole))) == "0123456789" * 5
        else:
            assert whole == [" ".join(line.split()) for line in expected], text


@pytest.mark.full
def test_no_word_of_a_reply_is_lost() -> None:
    chance = random.Random(1)
    texts = ["".join(chance.choices(PARTS, k=chance.randrange(1, 40))) for _ in range(300)]
    texts += ["> " * 50 + "word", "- " * 50 + "word", "*" * 500 + "word", "[" * 500 + "word"]
    cases = [(text, chance.choice([20, 40, 80]), [*text]) for text in texts]
    for (text, width, _), both in zip(cases, shown(cases), strict=True):
        for lines in both:
            missing = re.sub(r"[^a-z你好👩💻]", "", text.replace("&lt;", ""))
            for character in "".join(lines):
                missing = missing.replace(character, "", 1)
            is_table = "|---|" in text  # cells that no column has are not shown
            assert missing == "" or is_table, (text, width, lines)


def test_no_control_character_of_a_reply_reaches_the_terminal(
    chat: PseudoTerminal, provider: Provider
) -> None:
    evil = "\x1b]0;title\x07\x1b[2J\x9b2J\r\x08&#27;[2J&#x9b;2J&#7;&#13;"
    link = f"{evil} [{evil}](http://a.example/{evil})"
    code = f"`{evil}`\n\n```{evil}\n{evil}\n```"
    provider.script("Evil.", [f"{link}\n\n{code}\n# {evil}\n"])
    before = len(chat.seen)
    chat.type(f"Evil.{ENTER}")
    chat.expect("tokens in")
    reply, _, _ = chat.seen[before:].partition("tokens in")  # an editor moves the cursor behind it
    written = re.sub(r"\x1b\[(\?25[lh]|[0-9;]*[mAKCD]|2K|\?[0-9]+[lh]|J)", "", reply)
    assert not re.search("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]", written)
    assert "title" in chat.seen[before:]
    chat.expect(PROMPT)


def test_tab_completes_a_command_and_alt_enter_begins_a_line(
    chat: PseudoTerminal, provider: Provider
) -> None:
    chat.type("/sess\t")
    chat.expect("/session")
    chat.type(ENTER)
    chat.expect("This is session")
    chat.expect(PROMPT)
    chat.type(f"one\x1b{ENTER}two{ENTER}")
    chat.expect("tokens in")
    chat.expect(PROMPT)
    assert provider.calls[-1].prompt == "one\ntwo"


def test_a_block_larger_than_the_terminal_stays_whole(
    chat: PseudoTerminal, provider: Provider
) -> None:
    gate = threading.Event()
    rows = [f"row {number}" for number in range(100)]
    begin, rest = "\n".join(rows[:70]), "\n".join(rows[70:])
    reply: Step = [f"Before.\n\n```\n{begin}", Hold(gate), f"\n{rest}\n```\n\nAfter."]
    provider.script("Long.", reply)
    chat.type(f"Long.{ENTER}")
    chat.expect("row 69")
    assert chat.lines[-1] == "row 69", "its end is shown while it grows"
    gate.set()
    chat.expect("After.")
    chat.expect(PROMPT)
    lines = chat.lines
    at = lines.index("Before.")
    assert lines[at + 1 : at + 102] == [*rows, "After."]


def test_ctrl_c_keeps_the_text_of_the_cancelled_turn_on_screen(
    chat: PseudoTerminal, provider: Provider
) -> None:
    gate = threading.Event()
    provider.script("Endless.", ["One.\n\n- two\n- th", Hold(gate)])
    chat.type(f"Endless.{ENTER}")
    chat.expect("th")
    chat.type(CTRL_C)
    chat.expect("Interrupted")
    gate.set()
    chat.expect(PROMPT)
    assert [line.strip() for line in chat.lines[-5:-1]][:3] == ["One.", "• two", "• th"]
    assert chat.seen.rindex("\x1b[?25h") > chat.seen.rindex("\x1b[?25l"), "the cursor is shown"


STAYS = """
import asyncio
from my_agent.harness.late_errors import run_to_end
from my_agent.harness.terminal.terminal import Terminal
async def stay():
    while True:
        try:
            print("waits")
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass
screen = Terminal("my-agent", False)
runner = asyncio.Runner()
try:
    run_to_end(runner, screen.follow(stay()))
except KeyboardInterrupt:
    screen.end_line()
import os
os._exit(0)
"""


def test_the_cursor_is_shown_after_a_turn_that_goes_on_in_spite_of_ctrl_c(tmp_path: Path) -> None:
    terminal = PseudoTerminal([python(), "-c", STAYS], tmp_path, {})
    for _ in range(2):
        terminal.expect("waits")
        terminal.type(CTRL_C)
    assert terminal.exit_code() == 0
    terminal.close()
    assert terminal.seen.rindex("\x1b[?25h") > terminal.seen.rindex("\x1b[?25l")


OWN_LOG = """
import logging
handler = logging.FileHandler("own.log")
logging.getLogger().addHandler(handler)
from my_agent.harness.terminal.terminal import Terminal
Terminal("my-agent", False)
logging.warning("Kept.")
"""


def test_a_log_file_of_the_owner_stays_a_file(tmp_path: Path) -> None:
    terminal = PseudoTerminal([python(), "-c", OWN_LOG], tmp_path, {})
    assert terminal.exit_code() == 0
    terminal.close()
    assert (tmp_path / "own.log").read_text() == "Kept.\n"


NO_HOME = """
import os
os.environ.pop("XDG_STATE_HOME", None)
os.path.expanduser = lambda path: path
from my_agent.harness.terminal.line_editor import open_history
open_history("my-agent").append_string("Hello.")
"""


@pytest.mark.full
def test_a_user_without_a_home_has_no_history(tmp_path: Path) -> None:
    subprocess.run([python(), "-c", NO_HOME], cwd=tmp_path, check=True)
    assert list(tmp_path.iterdir()) == []


LATE = """
import asyncio, logging, threading
logging.basicConfig()
from my_agent.harness.terminal.terminal import Terminal
screen = Terminal("my-agent", False)
threading.Timer(2, logging.warning, ["Late."]).start()
print("read", repr(asyncio.run(screen.read())))
"""


def test_a_line_of_the_log_stands_above_a_half_typed_prompt(tmp_path: Path) -> None:
    terminal = PseudoTerminal([python(), "-c", LATE], tmp_path, {})
    terminal.expect(PROMPT)
    terminal.type("Half")
    terminal.expect("Late.")
    terminal.expect("Half")
    assert terminal.lines[-2:] == ["WARNING:root:Late.", "> Half"]
    terminal.type(f" a prompt{ENTER}")
    assert terminal.exit_code() == 0
    assert terminal.lines[-1] == "read 'Half a prompt'"
    terminal.close()


IMPORTS = """
import sys
import my_agent.harness.http.serve
from my_agent.main import cli
try:
    cli(["chat", *sys.argv[1:]])
finally:
    print(*sys.modules, file=sys.stderr)
"""


@pytest.mark.full
@pytest.mark.parametrize("target", [target for target in TARGETS if not target.is_node])
@pytest.mark.parametrize("words", [[], ["Hello."]], ids=["a pipe", "a question"])
def test_terminal_libraries_are_not_imported_for(words: list[str], target: Target) -> None:
    command = [str(installed(target.variant) / ".venv" / "bin" / "python"), "-c", IMPORTS]
    ended = subprocess.run(
        [*command, *words], input="Hello.\n", capture_output=True, text=True, check=True
    )
    modules = ended.stderr.splitlines()[-1].split()
    assert "my_agent.harness.terminal.conversation" in modules
    terminal = {"my_agent.harness.terminal.terminal", "markdown_it", "prompt_toolkit", "rich"}
    assert terminal & {*modules} == set()
