"""Code on the page: its parts have colors, its text is unchanged, and no code keeps it busy."""

import re
import threading

import pytest
from playwright.sync_api import expect

from tests.conformance.steps import Hold, Step
from tests.conftest import ROOT
from tests.ui.test_page import pytest_generate_tests  # noqa: F401 (what pytest looks for)
from tests.ui.visitor import Visitor

SOURCE = ROOT / "template" / "shared" / "page" / "highlight.js"
COLORED = """(code) => [...code.querySelectorAll('span')].map(
    (span) => `${span.className} ${span.textContent.trim()}`
)"""

# The parts with a color, by the language and the code.
CODE = {
    ("python", '@one\ndef f(a="b\\"c"):  # d\n    """e\n    f"""\n    return None, 1_0.5, é1'): [
        *("call @one", "keyword def", "call f", 'string "b\\"c"', "comment # d"),
        *('string """e\n    f"""', "keyword return", "keyword None", "number 1_0.5"),
    ],
    ("js", "const a = `b\n${c}` // d\nf(/* g\n */ 'h', 0x1f)"): [
        *("keyword const", "string `b\n${c}`", "comment // d", "call f", "comment /* g\n */"),
        *("string 'h'", "number 0x1f"),
    ],
    ("TypeScript", "type A = readonly B[]"): ["keyword type", "keyword readonly"],
    ("json", '{"a": ["b\\n", -1.5e3, true]}'): [
        *('key "a"', 'string "b\\n"', "number -1.5e3", "keyword true"),
    ],
    ("bash", '$ pip install -U x | sort # a\nif don\'t; then A=1 echo "$B" $B; fi'): [
        *("call pip", "key -U", "call sort", "comment # a", "keyword if", "keyword then"),
        *("key A", "number 1", 'string "$B"', "key $B", "keyword fi"),
    ],
    ("yaml", "- a-b: 'c' # d\n  e: true\n  f: it's http://g"): [
        *("key - a-b", "string 'c'", "comment # d", "key e", "keyword true", "key f"),
    ],
    ("html", '<!-- a --><a b="c">don\'t &amp;</a></script>'): [
        *("comment <!-- a -->", "keyword <a", "key b", 'string "c"', "keyword >"),
        *("number &amp;", "keyword </a", "keyword >", "keyword </script", "keyword >"),
    ],
    ("xml", "<?xml version='1.0'?>"): [
        *("keyword <?xml", "key version", "string '1.0'", "keyword ?>"),
    ],
    ("css", "@media a { #b:hover { color: #fff; width: 1.5em !important } } /* c */"): [
        *("keyword @media", "key color", "number #fff", "key width", "number 1.5em"),
        *("keyword !important", "comment /* c */"),
    ],
    ("sql", "SELECT count(*) from a where b = 'c' -- d"): [
        *("keyword SELECT", "call count", "keyword from", "keyword where", "string 'c'"),
        "comment -- d",
    ],
    ("go", "func main() { a := `b` }"): ["keyword func", "call main", "string `b`"],
    ("rust", "fn f<'a>(b: &'a str) -> char { '\\n' }"): [
        *("keyword fn", "key 'a", "key 'a", "keyword str", "keyword char", "string '\\n'"),
    ],
    ("java", '@A class B { String c = "d"; }'): ["call @A", "keyword class", 'string "d"'],
    ("c", "#include <a.h>\nint main(void) { return 0; }"): [
        *("keyword #include", "keyword int", "call main", "keyword void", "keyword return"),
        "number 0",
    ],
    ("diff", "--- a\n+++ b\n@@ -1 +1 @@\n-c\n+d\n e"): [
        *("keyword --- a", "keyword +++ b", "keyword @@ -1 +1 @@", "removed -c", "added +d"),
    ],
    ("toml", '[a.b]\nc = "d" # e\nf = true'): [
        *("keyword [a.b]", "key c", 'string "d"', "comment # e", "key f", "keyword true"),
    ],
    ("ini", "; a\n[b]\nc=d"): ["comment ; a", "keyword [b]", "key c"],
    ("dockerfile", "FROM a:1 AS b\nRUN c"): [
        *("keyword FROM", "number 1", "keyword AS", "keyword RUN"),
    ],
    ("md", "# a\n- `b` [c](d)\n> e"): [
        *("keyword # a", "number -", "string `b`", "call [c](d)", "comment > e"),
    ],
    ("brainfuck", "if 1"): [],
    ("constructor", "if 1"): [],
    ("", "if 1"): [],
}
SHOW = """async (texts) => {
    const { showMarkdown } = await import('./markdown.js')
    return texts.map((text) => {
        const container = document.createElement('div')
        showMarkdown(container, text)
        const code = container.querySelector('pre code')
        return [code.textContent, (COLORED)(code)]
    })
}""".replace("COLORED", COLORED)


@pytest.mark.page_only
def test_code_has_colors_and_its_text_is_unchanged(visitor: Visitor) -> None:
    texts = [f"```{language}\n{code}\n```" for language, code in CODE]
    shown = dict(zip(CODE, visitor.page.evaluate(SHOW, texts), strict=True))
    assert shown == {key: [key[1], parts] for key, parts in CODE.items()}


@pytest.mark.page_only
def test_code_has_colors_once_when_it_is_complete(visitor: Visitor) -> None:
    visitor.context.grant_permissions(["clipboard-read", "clipboard-write"])
    closing, going, ending = threading.Event(), threading.Event(), threading.Event()
    steps: Step = [
        "```py\nif a:\n",
        *(Hold(closing), "  1\n```"),
        *(Hold(going), "\n\nMore"),
        *(Hold(ending), " text.\n\n```py\nif b"),
    ]
    visitor.say("Write.", steps)
    code = visitor.page.locator("pre code").first
    expect(code).to_have_text("if a:", use_inner_text=True)
    assert code.evaluate(COLORED) == []
    closing.set()
    expect(code.locator(".number")).to_have_text("1")
    code.evaluate("(code) => { code.firstChild.first = true }")
    going.set()
    visitor.sees("More")
    ending.set()
    visitor.committed(1)
    assert code.evaluate("(code) => code.firstChild.first")  # it is still the same node
    assert visitor.page.locator("pre code").last.evaluate(COLORED) == []
    visitor.page.get_by_title("Copy this code").first.click()
    expect(visitor.page.get_by_title("Copy this code").first).to_have_text("Copied")
    assert visitor.page.evaluate("navigator.clipboard.readText()") == "if a:\n  1"


REOPEN = """async () => {
    const { showMarkdown } = await import('./markdown.js')
    const container = document.createElement('div')
    return ['```', '```x', '```x\\n2\\n```'].map((end) => {
        showMarkdown(container, `\\`\\`\\`py\\n1\\n${end}`)
        return container.querySelector('pre code').innerHTML
    })
}"""


@pytest.mark.page_only
def test_a_fence_that_goes_on_is_code(visitor: Visitor) -> None:
    one, two = (f'<span class="number">{number}</span>' for number in (1, 2))
    assert visitor.page.evaluate(REOPEN) == [one, "1\n```x", f"{one}\n```x\n{two}"]


# What begins, ends or nests something.
PIECES = [
    *"\"'`#/-<>@$[]({=:;.!& \n\t\\\u2028",
    *("a", "1", "a ", " a", "\\'", '\\"', '"""', "'''", '"""\\', "/*", "/**/", "//", "--"),
    *("<!--", "<a ", "<a b", '<a b="', " b=", "</", "a.", "a-", "1A", "a:", "a: ", "- "),
    *("a=", "${", "$(", "a(", "[a](", "[a", "](", "# ", "> ", "1. ", "\u2028a", "\n\ta"),
    *("|a", "; a", "'a", "\\n'", '"a":', '"a" ', "] ", "[] ", "&a", "\ud83d\ude00", "\ud83d"),
]
TIME = """async ([pieces, languages, size]) => {
    const { partsOf } = await import('./highlight.js')
    const time = (piece, language, size) => {
        const code = piece.repeat(size / piece.length)
        const began = performance.now()
        const parts = partsOf(code, language, 1e5)
        const took = performance.now() - began
        if (parts.map(({ text }) => text).join('') !== code) throw Error(piece)
        return Math.round(took)
    }
    const slow = []
    for (const language of languages) for (const piece of pieces) {
        // Four times the length takes 4 times as long in linear time, 16 times in quadratic time.
        const limit = 8 * time(piece, language, size / 4) + 200
        // A busy machine may delay a try.
        const tries = [time(piece, language, size)]
        while (Math.min(...tries) > limit && tries.length < 3) {
            tries.push(time(piece, language, size))
        }
        if (Math.min(...tries) > limit) slow.push([language, piece, limit, tries])
    }
    return slow
}"""


def languages() -> list[str]:
    """The first name of each language."""
    return re.findall(r"^add\(\s*'(\S+)", SOURCE.read_text("utf-8"), re.MULTILINE)


@pytest.mark.full
@pytest.mark.page_only
def test_no_code_can_keep_the_page_busy(visitor: Visitor) -> None:
    assert len(languages()) > 15
    assert visitor.page.evaluate(TIME, [PIECES, languages(), 50_000]) == []


@pytest.mark.page_only
def test_long_and_hostile_code_is_text(visitor: Visitor) -> None:
    hostile = "</code></pre></script><script>alert(1)</script><img src=x onerror=alert(1)>\n"
    long = hostile * (200_000 // len(hostile))
    many = "1 " * 20_000
    blocks = [f"```html\n{code.rstrip()}\n```" for code in (hostile, long)]
    blocks += [f"```js\n{many.rstrip()}\n```"] * 5
    visitor.say("Attack.", ["\n\n".join(blocks)])
    visitor.committed(1)
    shown = visitor.page.locator("pre code").all()
    texts = [one.evaluate("(code) => code.textContent") for one in shown]
    assert texts == [hostile.rstrip(), long.rstrip(), *[many.rstrip()] * 5]
    assert [one.locator("span").count() > 0 for one in shown[:3]] == [True, False, True]
    assert visitor.page.locator("pre span").count() < 10_000
