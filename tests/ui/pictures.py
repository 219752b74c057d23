"""Photographs the page and the terminal in real runs: `uv run python -m tests.ui.pictures`.

A folder behind it is where the pictures go; without one it is tests/pictures.
"""

import html
import re
import sys
import tempfile
from pathlib import Path

import pyte
from playwright.sync_api import Browser, Page, sync_playwright

from tests.conformance.provider import Provider
from tests.conformance.server import Server
from tests.conformance.steps import CUT, HANG, Call, End, Step
from tests.installed import installed
from tests.support.pseudo_terminal import CTRL_C, ENTER, PROMPT, PseudoTerminal
from tests.ui.browser import launch
from tests.ui.test_page import PAGES
from tests.ui.visitor import Visitor

FOLDER = Path(__file__).parents[1] / "pictures"
SIZE = {"width": 1200, "height": 760}
# The font of the pictures, where it is installed: apt-get install fonts-inter.
FONTS = """<fontconfig><include>/etc/fonts/fonts.conf</include><match>
<test name="family"><string>sans-serif</string></test>
<edit name="family" mode="prepend" binding="strong"><string>Inter</string></edit>
</match></fontconfig>"""
PROMISE = "A session holds exactly the turns that completed."
REPLY = "It has **eight words**, and *exactly* is the one that counts. Shall I make it shorter?"


def talk(visitor: Visitor) -> None:
    """Three sessions, the last with a tool call and a failure."""
    provider, page = visitor.provider, visitor.page
    for text in ("Draft the release note", "Which orders are late?"):
        visitor.say(text)
        visitor.committed(1)
        page.get_by_role("button", name="New session").click()
    page.get_by_label("Actor").fill("ada")
    call = Call("word_count", {"text": PROMISE})
    visitor.say("How many words has our promise?", [call], [REPLY])
    visitor.committed(1)
    provider.script("Yes, in five words.", ["Turns complete, or they", CUT])
    visitor.say("Yes, in five words.")
    visitor.failed("model_failed")
    visitor.failed("model_failed")
    page.locator("summary").click()
    page.locator("#transcript").evaluate("(transcript) => (transcript.scrollTop = 1e6)")


TERMINAL = """<meta charset="utf-8"><style>
body { margin: 0; padding: 20px 24px; background: #17181c; color: #e7e8ec }
pre { margin: 0; font: 15px/1.6 'JetBrains Mono', 'DejaVu Sans Mono', monospace }
i { color: #8d929e; font-style: normal }
</style><pre>"""


def screen_of(seen: str) -> str:
    """What a terminal shows of what was written to it, as HTML."""
    screen = pyte.Screen(200, 60)
    pyte.Stream(screen).feed(seen.replace("\x1b[2m", "\x1b[90m"))  # dim, which pyte lacks
    lines = []
    for number in range(screen.cursor.y + 1):
        line = ""
        for column in range(len(screen.display[number].rstrip()) + 1):
            cell = screen.buffer[number][column]
            tag = "b" if cell.bold else "i" if cell.fg == "brightblack" else "span"
            line += f"<{tag}>{html.escape(cell.data)}</{tag}>"
        lines.append(re.sub("</(b|i|span)><\\1>", "", line))
    return "\n".join(lines)


def photograph_terminal(browser: Browser, provider: Provider, folder: Path, path: Path) -> None:
    """A conversation in `chat`: a tool call, a failure, and a turn that Ctrl-C ends."""
    target = PAGES[0]
    project = installed(target.variant, **dict(target.answers))
    command = [str(project / ".venv" / "bin" / "my-agent"), "chat"]
    environment = {"HOME": str(folder), **target.provider(provider.origin)}
    terminal = PseudoTerminal(command, folder, environment)
    call = Call("word_count", {"text": PROMISE})
    says: dict[str, list[Step]] = {
        "How many words has our promise?": [[call], ["It has eight words. Make it shorter?"]],
        "Yes, in five words.": [["Turns complete, or they", End("length")]],
        "Now write a very long one.": [["Once upon a time a turn began, and", HANG]],
    }
    try:
        for text, steps in says.items():
            provider.script(text, *steps)
            terminal.expect(PROMPT)
            terminal.type(text + ENTER)
        terminal.expect("began,")
        terminal.type(CTRL_C)
        terminal.expect(PROMPT)
        page = browser.new_page(viewport={"width": 1000, "height": 100})
        page.set_content(TERMINAL + screen_of(terminal.seen))
        path.parent.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=path, full_page=True)
        print(f"{path}: {path.stat().st_size // 1024} kB")
    finally:
        terminal.close()


def photograph(page: Page, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    page.wait_for_timeout(300)
    page.screenshot(path=path)
    print(f"{path}: {path.stat().st_size // 1024} kB")


def main(folder: Path) -> None:
    """Write page.png, the same dark and narrow, and terminal.png."""
    provider = Provider()
    with tempfile.TemporaryDirectory() as home, sync_playwright() as playwright:
        (Path(home) / "fonts.conf").write_text(FONTS)
        server = Server(PAGES[0], Path(home), provider.origin, {"UI": 1})
        try:
            browser = launch(playwright, FONTCONFIG_FILE=f"{home}/fonts.conf")
            visitor = Visitor(browser, server, provider, viewport=SIZE)
            talk(visitor)
            photograph(visitor.page, folder / "page.png")
            visitor.page.emulate_media(color_scheme="dark")
            photograph(visitor.page, folder / "page-dark.png")
            visitor.page.set_viewport_size({"width": 360, "height": 760})
            photograph(visitor.page, folder / "page-narrow.png")
            visitor.leave()
            photograph_terminal(browser, provider, Path(home), folder / "terminal.png")
        finally:
            server.stop()
            provider.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else FOLDER)
