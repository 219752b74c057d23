"""`chat` of a TypeScript render: Markdown as it streams, keys of its editor, and its libraries."""

import json
import os
import random
import re
import subprocess
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from tests.conformance.provider import Provider
from tests.conformance.steps import HANG
from tests.conformance.targets import SHARED, TARGETS, Target
from tests.installed import NODE, installed
from tests.support.pseudo_terminal import CTRL_C, ENTER, SEQUENCE, UP, PseudoTerminal, screen

pytestmark = pytest.mark.slow

# Writes what `LiveMarkdown` writes for chunks that come slowly.
DRIVER = """
import { mock } from 'node:test'
import { createInterface } from 'node:readline'
mock.timers.enable({ apis: ['setTimeout'] })
const { LiveMarkdown } = await import(process.argv[1])
const write = process.stdout.write.bind(process.stdout)
for await (const line of createInterface({ input: process.stdin })) {
  const [chunks, columns, rows] = JSON.parse(line)
  Object.assign(process.stdout, { columns, rows })
  const written = []
  process.stdout.write = (text) => written.push(Buffer.from(text).toString())
  const markdown = new LiveMarkdown(false)
  for (const chunk of chunks) {
    markdown.add(chunk)
    mock.timers.tick(100)
  }
  markdown.end()
  process.stdout.write = write
  console.log(JSON.stringify(written))
}
"""
WITHOUT_LIBRARIES = """
import { registerHooks } from 'node:module';
registerHooks({
  resolve(name, context, next) {
    if (/^@(earendil-works|speed-highlight)/.test(name)) throw new Error('loads ' + name);
    return next(name, context)
  },
})
"""
Case = tuple[Sequence[str], int, int]

# A text, the width, and the lines that are shown.
TABLE: list[tuple[str, int, list[str]]] = [
    ("Some **bold**, *em*, `code` and ~~no~~.", 80, ["Some bold, em, code and no."]),
    ("# A **title**\ntext", 80, ["A title", "", "text"]),
    ("- one\n- two\n  + three", 80, ["• one", "• two", "    • three"]),
    ("3. one two three\n4. two", 10, ["3. one two", "   three", "4. two"]),
    ("- one two three", 9, ["• one two", "  three"]),
    ("One\ntwo\n\nthree", 80, ["One", "two", "", "three"]),
    ("[text](https://a.example/x_y)", 80, ["text (https://a.example/x_y)"]),
    ("<https://a.example>", 80, ["https://a.example"]),
    ("![image](https://a.example/x.png)", 80, ["image (https://a.example/x.png)"]),
    ("As in [1].\n\n[1]: https://a.example", 80, ["As in [1].", "", "[1]: https://a.example"]),
    (
        "| a | b |\n|---|---|\n| one two three | 你好 |",
        20,
        [
            "┌───────────┬──────┐",
            "│ a         │ b    │",
            "├───────────┼──────┤",
            "│ one two   │ 你好 │",
            "│ three     │      │",
            "└───────────┴──────┘",
        ],
    ),
    (
        "```py\nx = [1]\n\n  ![y](z)\n```\nso",
        80,
        ["```py", "x = [1]", "", "  ![y](z)", "```", "", "so"],
    ),
    ("```\nunclosed **x**", 80, ["```", "unclosed **x**", "```"]),
    ("> one two", 80, ["│ one two"]),
    ("一二三四五六", 10, ["一二三四五", "六"]),
    ("snake_case, f(*args), 2 * 3 * 4", 80, ["snake_case, f(*args), 2 * 3 * 4"]),
    ("An **unclosed `mark", 80, ["An **unclosed `mark"]),
    ("<b>x</b> &amp; $HOME", 80, ["<b>x</b> &amp; $HOME"]),
    ("words are whole here", 10, ["words are", "whole here"]),
    ("sed s/a$/b$/, $PATH:$HOME/bin, A=$B$C", 80, ["sed s/a$/b$/, $PATH:$HOME/bin, A=$B$C"]),
    ("`![a](b)` is an image", 80, ["![a](b) is an image"]),
    ("![a [b] c](https://a.example)", 80, ["a [b] c (https://a.example)"]),
    ("so <!-- not hidden --> it is", 80, ["so <!-- not hidden --> it is"]),
    ("<!-- not hidden -->", 80, ["<!-- not hidden -->"]),
]
PARTS = [
    *("**", "*", "`", "```", "```py\n", "~~~\n", "# ", "- ", "1. ", "> ", "| a | b |\n|--|--|\n"),
    *(
        "\n",
        "\n",
        "\n\n",
        " ",
        "    ",
        "\t",
        "word",
        "[a](b)",
        "![a](b)",
        "[a]: b\n",
        "<b>",
        "<!--",
    ),
    *(
        "&#27;[2J",
        "&#x9b;",
        "$x^2$",
        "\\(",
        "\\[",
        "\\x1b",
        "你好",
        "👩\u200d💻",
        "e\u0301",
        "x" * 50,
    ),
    *(
        "](javascript:",
        "<https://x\\u001b>",
        "---\n",
        "===\n",
        "$$",
        "\\frac{1}{2}",
        "\u202e",
        "||",
    ),
]


def show(cases: Sequence[Case], **variables: str) -> list[list[str]]:
    """What `LiveMarkdown` writes for each case: chunks, columns and rows."""
    module = (installed("vercel-typescript") / "src/harness/terminal/markdown.ts").as_uri()
    command = [str(NODE), "--input-type=module", "--eval", DRIVER, module]
    typed = "".join(f"{json.dumps(case)}\n" for case in cases)
    own = {"PATH": os.environ["PATH"], **variables}
    ended = subprocess.run(
        command, input=typed, env=own, capture_output=True, text=True, check=True, timeout=60
    )
    return [json.loads(line) for line in ended.stdout.splitlines()]


def on_screen(written: Sequence[str], columns: int = 80) -> list[str]:
    assert written[-1][-1:] == "\n", "what comes next begins a line"
    return screen("".join(written).replace("\n", "\r\n"), columns)


def cuts(text: str, chance: random.Random) -> list[str]:
    ends = sorted({0, len(text), *(chance.randrange(len(text) + 1) for _ in range(9))})
    return [text[start:end] for start, end in pairwise(ends)]


def test_markdown_is_laid_out_wherever_its_text_is_cut() -> None:
    slowly: list[Case] = [(list(text), columns, 24) for text, columns, _ in TABLE]
    at_once: list[Case] = [([text], columns, 24) for text, columns, _ in TABLE]
    shown = show([*slowly, *at_once])
    for (text, columns, expected), written in zip([*TABLE, *TABLE], shown, strict=True):
        assert on_screen(written, columns) == expected, text


def test_styles_are_those_that_the_terminal_can_show() -> None:
    text = "**b** *i* `c` [l](https://a.example)\n\n```python\ndef f(): # no\n```\n"
    table = "| a b c d e f |\n|---|\n| g h i j k l |"
    cases: list[Case] = [([text], 80, 24), ([table], 10, 24)]
    (colored, _) = show(cases, FORCE_COLOR="1")
    written = "".join(colored)
    for styled in ("[1mb", "[3mi", "[36mc", "[4ml", "[31mdef", "[90m# no"):
        assert f"\x1b{styled}" in written
    for plain in show(cases, NO_COLOR="1"):
        assert not re.search("\x1b\\[[0-9;]*m", "".join(plain))


def test_finished_blocks_are_printed_once_and_the_last_one_fits_in_the_window() -> None:
    first = "The first paragraph."
    code = "".join(f"line {number}\n" for number in range(50))
    chunks = [f"{first}\n\n", *re.findall(r".{1,9}", f"```\n{code}```\n", re.DOTALL), "\nEnd."]
    (written,) = show([(chunks, 40, 10)])
    assert "".join(written).count(first) == 2, "also while it was the last block"
    moves = [int(up) for up in re.findall(r"\x1b\[(\d+)A", "".join(written))]
    assert max(moves) == 9
    assert on_screen(written) == [first, "", "```", *code.splitlines(), "```", "", "End."]


def test_no_text_of_a_model_controls_the_terminal() -> None:
    chance = random.Random(1)
    texts = ["".join(chance.choices(PARTS, k=chance.randrange(1, 40))) for _ in range(400)]
    cases: list[Case] = [(cuts(text, chance), chance.choice([10, 40]), 24) for text in texts]
    for text, written in zip(texts, show(cases, FORCE_COLOR="1"), strict=True):
        plain = SEQUENCE.sub("", "".join(written))
        controls = {char for char in plain if ord(char) < 32 or 127 <= ord(char) < 160}
        assert controls <= {"\n"}, text
        used = {found[-1] for found in SEQUENCE.findall("".join(written))}
        assert used <= set("mAJ"), text


@pytest.mark.full
def test_hostile_text_is_shown_and_does_not_block_for_long() -> None:
    marks = [">", "1. ", "[", "**a *b ", "_a", "<a ", "!", "a~", "$\\frac{", "`", "x"]
    cases: list[Case] = [([mark * (40_000 // len(mark)), "\n\nEnd."], 40, 24) for mark in marks]
    for mark, written in zip(marks, show(cases), strict=True):
        lines = on_screen(written)
        assert "End." in "".join(lines[-3:]), mark
        assert max(map(len, lines)) <= 40, mark


def test_javascript_may_cut_a_character_in_two() -> None:
    (written,) = show([(["A \ud83d", "\udc4d b"], 80, 24)])
    assert on_screen(written) == ["A 👍 b"]


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(
            target, id=target.name, marks=[] if target.name in SHARED else pytest.mark.full
        )
        for target in TARGETS
        if target.is_node
    ],
)
def target(request: pytest.FixtureRequest) -> Target:
    found: Target = request.param
    return found


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    provider = Provider()
    yield provider
    provider.close()


@pytest.fixture
def chat(target: Target, provider: Provider, tmp_path: Path) -> Iterator[PseudoTerminal]:
    command = [*target.command(installed(target.variant))[:-1], "chat"]
    terminal = PseudoTerminal(command, tmp_path, target.provider(provider.origin))
    terminal.expect("> $")
    yield terminal
    terminal.close()


def test_tab_completes_a_command_and_is_a_character_elsewhere(
    chat: PseudoTerminal, provider: Provider
) -> None:
    chat.type("/se\t")
    chat.expect("/session$")
    chat.type(ENTER)
    assert "This is session" in chat.expect("> $")
    chat.type("/\t\t")
    shown = chat.expect("> /$")
    assert {"/new", "/retry", "/undo", "/help", "/quit"} <= set(shown.split())
    chat.type(CTRL_C)
    chat.expect(r"\n> $")
    for typed in ("a\tb", "\x1b[200~c\r/h\td\x1b[201~"):
        chat.type(f"{typed}{ENTER}")
        chat.expect("> $")
    assert [call.prompt for call in provider.calls[-2:]] == ["a\tb", "c\n/h\td"]


def test_alt_enter_begins_another_line_of_the_prompt(
    chat: PseudoTerminal, provider: Provider
) -> None:
    chat.type("one\x1b\rtwo\x1b\r")
    chat.expect("two\r+\n> $")
    chat.type(f"three{ENTER}")
    chat.expect("You said: ")
    chat.expect("> $")
    assert provider.calls[-1].prompt == "one\ntwo\nthree"
    chat.type("half\x1b\rtyped")
    chat.type(CTRL_C)
    chat.expect(r"\n> $")
    chat.type(f"Whole.{ENTER}")
    chat.expect("You said: Whole.")
    chat.expect("> $")
    chat.type(UP)
    chat.expect("Whole.$")
    chat.type(UP)
    chat.expect("> $")  # no line of the longer prompt


def test_a_reply_is_drawn_while_it_streams_and_stays_after_ctrl_c(
    chat: PseudoTerminal, provider: Provider
) -> None:
    provider.script("Show.", ["**One** \x1b[2J\x1b]0;title\x07\n\n- a", "bc\n", "- d", HANG])
    chat.resize(80)
    chat.type(f"Show.{ENTER}")
    chat.expect("• d")
    chat.type(CTRL_C)
    chat.expect(r"saved\.\r\n> $")
    assert screen(chat.seen, 80)[-5:] == [
        "One [2J]0;title",
        "",
        "• abc",
        "• d",
        "Interrupted: this turn was not saved.",
    ]


def test_the_words_of_the_first_line_are_whole_in_40_columns(
    target: Target, tmp_path: Path
) -> None:
    narrow = ["sh", "-c", 'stty cols 40; exec "$@"', "--"]
    command = [*narrow, *target.command(installed(target.variant))[:-1], "chat"]
    terminal = PseudoTerminal(command, tmp_path, {})
    terminal.expect("> $")
    terminal.close()
    first = "my-agent, offline model. /help lists the"
    assert screen(terminal.seen, 40)[:2] == [first, "commands; Ctrl-D leaves."]


@pytest.mark.parametrize(
    ("words", "typed"),
    [
        (["chat"], "Hi.\n"),
        pytest.param(["chat", "Hi."], "", marks=pytest.mark.full),
        pytest.param(["check"], "", marks=pytest.mark.full),
        pytest.param(["--help"], "", marks=pytest.mark.full),
    ],
)
def test_a_command_that_is_piped_loads_no_library_of_the_terminal(
    words: list[str], typed: str, target: Target, tmp_path: Path
) -> None:
    ended = subprocess.run(
        [*without_libraries(target), *words],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "HOST": "127.0.0.1", "PORT": "0", "FORCE_COLOR": "1"},
        input=typed,
        capture_output=True,
        text=True,
    )
    assert (ended.returncode, "loads" in ended.stderr) == (0, False), ended.stderr
    assert "\x1b" not in ended.stdout, "a pipe gets no styles"


@pytest.mark.full
def test_serve_loads_no_library_of_the_terminal_and_chat_in_a_terminal_does(
    target: Target, tmp_path: Path
) -> None:
    command = without_libraries(target)
    terminal = PseudoTerminal([*command, "chat"], tmp_path, {})
    assert terminal.exit_code() == 1
    assert "loads @" in terminal.seen
    terminal.close()
    server = PseudoTerminal([*command, "serve"], tmp_path, {"HOST": "127.0.0.1", "PORT": "0"})
    server.expect("Listening on")
    server.close()


def without_libraries(target: Target) -> list[str]:
    main = installed(target.variant) / "src" / "main.ts"
    return [str(NODE), "--import", f"data:text/javascript,{WITHOUT_LIBRARIES}", str(main)]
