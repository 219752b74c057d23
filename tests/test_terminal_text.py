"""Markdown and wrapping in `chat` in TypeScript, whatever the chunks are."""

import json
import random
import re
import subprocess
from collections.abc import Callable
from itertools import pairwise
from unicodedata import category, east_asian_width

import pytest

from tests.installed import NODE, installed

pytestmark = pytest.mark.slow

TYPESCRIPT = """
import { createInterface } from 'node:readline'
const { Markdown } = await import(process.argv[1])
const show = (text, code) => (code ? `<${code}>${text}</>` : text)
for await (const line of createInterface({ input: process.stdin })) {
  const [chunks, columns, isStyled] = JSON.parse(line)
  const markdown = new Markdown(() => columns, isStyled ? show : undefined)
  const shown = chunks.map((chunk) => markdown.feed(chunk))
  console.log(JSON.stringify([...shown, markdown.end()]))
}
"""
Case = tuple[list[str], int, bool]
Show = Callable[[list[Case]], list[list[str]]]

# A text, the width, and what is shown: <1> is bold, <2> dim, <36> code.
TABLE = [
    ("Some **bold words**, `code`.", 80, "Some <1>bold</> <1>words</>, <36>code</>."),
    ("***both*** and **use `it` now**", 80, "<1>both</> and <1>use</> <1;36>it</> <1>now</>"),
    ("# A **title**\ntext", 80, "<1>A</> <1>title</>\ntext"),
    ("## `run` it", 80, "<1;36>run</> <1>it</>"),
    ("`` a`b `` ```c```", 80, "<36>a`b</> <36>c</>"),
    ("- one\n* two\n  + three", 80, "• one\n• two\n  • three"),
    ("1. one\n10) ten\n\tin", 80, "1. one\n10) ten\n    in"),
    ("**你好**世界", 80, "<1>你</><1>好</>世界"),
    # Not Markdown: as it is.
    ("2 * 3 * 4, a*b*c", 80, "2 * 3 * 4, a*b*c"),
    ("snake_case, __init__, _a_", 80, "snake_case, __init__, _a_"),
    ("x**2 + y**2, (a)**2 - (b)**2", 80, "x**2 + y**2, (a)**2 - (b)**2"),
    ("f(*args, **some), **more, ** no **", 80, "f(*args, **some), **more, ** no **"),
    ("An **unclosed\nline** and `another\none`", 80, "An **unclosed\nline** and `another\none`"),
    ("****, ``, **, ```", 80, "****, ``, **, ```"),
    ("**", 80, "**"),
    ("- \n#\n# \n1.5 -5 #tag\n---\n***", 80, "-\n#\n#\n1.5 -5 #tag\n---\n***"),
    ("[a](https://example.com/a_b_c)", 80, "[a](https://example.com/a_b_c)"),
    ("| a | b |\n|---|---|\n| 1  |  2 |", 80, "| a | b |\n|---|---|\n| 1  |  2 |"),
    # Code is never wrapped, and nothing in it is Markdown.
    (
        "```py\n\tx = 2 ** 3  # **no** `no`\n\n```\nso **on**",
        10,
        "<2>```py</>\n\t<2>x</> <2>=</> <2>2</> <2>**</> <2>3</>  "
        "<2>#</> <2>**no**</> <2>`no`</>\n\n<2>```</>\nso <1>on</>",
    ),
    ("~~~~\n```\n~~~\n~~~~ \nso", 80, "<2>~~~~</>\n<2>```</>\n<2>~~~</>\n<2>~~~~</>\nso"),
    ("  ```\nx\n  ```\n**y**", 80, "  <2>```</>\n<2>x</>\n  <2>```</>\n<1>y</>"),
    ("```\nunclosed", 80, "<2>```</>\n<2>unclosed</>"),
    # Words are wrapped whole, and hang under the text of a list.
    ("one two three", 9, "one two\nthree"),
    ("one two  three", 10, "one two\nthree"),
    ("exactly ten", 10, "exactly\nten"),
    ("0123456789 0123456789", 10, "0123456789\n0123456789"),
    ("a 0123456789abcdef b", 10, "a\n0123456789\nabcdef b"),
    ("- one two three\n  four five six", 10, "• one two\n  three\n  four\n  five six"),
    ("12. one two three", 10, "12. one\n    two\n    three"),
    ("a **b c** d `e f` g", 5, "a <1>b</> <1>c</>\nd <36>e</> <36>f</>\ng"),
    ("**0123456789abc**", 10, "<1>0123456789\nabc</>"),
    ("你好世界你好世界", 10, "你好世界你\n好世界"),
    ("你好世界你，好世界", 10, "你好世界\n你，好世界"),
    ("ab 한국어 かな ﾊﾝ", 10, "ab 한국어\nかな ﾊﾝ"),
    ("👍🏽👍🏽👍🏽👍🏽👍🏽👍🏽", 10, "👍🏽👍🏽👍🏽👍🏽👍🏽\n👍🏽"),
    ("1234567 👩\u200d💻 b", 10, "1234567\n👩\u200d💻 b"),
    (
        "e\u0301e\u0301e\u0301 e\u0301e\u0301e\u0301 x",
        7,
        "e\u0301e\u0301e\u0301 e\u0301e\u0301e\u0301\nx",
    ),
]
# As with NO_COLOR: only wrapped.
PLAIN = [
    ("# A **title** of `code`", 12, "# A\n  **title**\n  of `code`"),
    ("- one two three", 10, "- one two\n  three"),
    ("```\none two three\n```", 10, "```\none two three\n```"),
]
PARTS = [
    *("**", "*", "***", "`", "``", "```", "~~~", "#", "## ", "- ", "* ", "+ ", "1. ", "12) "),
    *("\n", "\n", "\n", " ", " ", "  ", "\t", "word", "snake_case", "2", ".", ",", "(", ")", "\\"),
    *("你好", "，", "世", "👍🏽", "👩\u200d💻", "é", "e\u0301", "\ufe0f", "0123456789" * 3, "• "),
]
MARKS = re.compile(r"[\s*`#+•-]")


@pytest.fixture(scope="module")
def show() -> Show:
    """What the module shows after each chunk."""
    project = installed("vercel-typescript")
    module = (project / "src" / "markdown.ts").as_uri()
    command = [str(NODE), "--input-type=module", "--eval", TYPESCRIPT, module]

    def show(cases: list[Case]) -> list[list[str]]:
        typed = "".join(f"{json.dumps(case)}\n" for case in cases)
        ended = subprocess.run(command, input=typed, capture_output=True, text=True, check=True)
        return [json.loads(line) for line in ended.stdout.splitlines()]

    return show


def cuts(text: str, chance: random.Random) -> list[str]:
    """The text in chunks."""
    ends = sorted({0, len(text), *(chance.randrange(len(text) + 1) for _ in range(9))})
    return [text[start:end] for start, end in pairwise(ends)]


def columns(line: str) -> int:
    wide = sum(2 if east_asian_width(char) in "WF" else 1 for char in line)
    joined = sum(category(char) in {"Mn", "Cf"} for char in line)
    return wide - joined - 2 * len(re.findall("[\U0001f3fb-\U0001f3ff]", line))


def test_markdown_is_shown_like_this(show: Show) -> None:
    rows = [(*row, True) for row in TABLE] + [(*row, False) for row in PLAIN]
    shown = show([([text], width, styled) for text, width, _, styled in rows])
    for (text, _, expected, _), parts in zip(rows, shown, strict=True):
        assert "".join(parts) == expected, text


def test_where_the_text_is_cut_does_not_matter(show: Show) -> None:
    rows = [(text, width, True) for text, width, _ in TABLE]
    cases: list[Case] = [
        ([text[:at], text[at:]], width, styled)
        for text, width, styled in rows
        for at in range(len(text) + 1)
    ]
    cases += [([*text], width, styled) for text, width, styled in rows]
    expected = {text: shown for text, _, shown in TABLE}
    for (chunks, *_), shown in zip(cases, show(cases), strict=True):
        assert "".join(shown) == expected["".join(chunks)], chunks


def test_a_chunk_may_cut_a_character_in_two(show: Show) -> None:
    (shown,) = show([(["A \ud83d", "\udc4d b ", "\ud83d"], 80, True)])
    assert (
        "".join(shown).encode("utf-16", "surrogatepass").decode("utf-16", "replace") == "A 👍 b �"
    )


def test_a_word_is_shown_when_it_is_whole(show: Show) -> None:
    chunks = [
        "Hel",
        "lo ",
        "**you",
        " th",
        "ere** ",
        "a `",
        "b` c",
        "\n- on",
        "e ",
        "```\nx y",
        "\n",
    ]
    (shown,) = show([(chunks, 80, True)])
    assert shown[:7] == ["", "Hello", "", "", " <1>you</> <1>there</>", " a", " <36>b</>"]
    assert shown[7:9] == [" c\n• ", "one"]
    assert show([(["不", "要等"], 80, True)]) == [["", "不要", "等"]]


def test_unclosed_marks_are_not_waited_for_long(show: Show) -> None:
    words = [f"word{number} " for number in range(100)]
    for mark in ("`", "**", "\t" * 500, "-" * 500, "```"):
        (shown,) = show([([mark, *words], 80, True)])
        assert "word99" not in "".join(shown[:60])
        assert "word0 " in "".join(shown[:60]).replace("\n", " "), mark


def test_nothing_is_lost(show: Show) -> None:
    chance = random.Random(1)
    texts = ["".join(chance.choices(PARTS, k=chance.randrange(1, 40))) for _ in range(1500)]
    cases: list[Case] = [
        (cuts(text, chance), chance.choice([10, 17, 40]), chance.random() < 0.9) for text in texts
    ]
    for text, (_, width, _), parts in zip(texts, cases, show(cases), strict=True):
        shown = "".join(parts)
        plain = re.sub("<[0-9;]*>|</>", "", shown)
        assert MARKS.sub("", plain) == MARKS.sub("", text)
        if "~~~" not in text and "```" not in text:
            assert all(columns(line) <= width for line in plain.split("\n")), (text, plain)
