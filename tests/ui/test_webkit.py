"""The page in WebKit, the engine of Safari, where it is installed: by the protocol WebDriver."""

# ruff: noqa: F811 (fixtures)

import json
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest

from tests.conformance.provider import Provider
from tests.conformance.server import Server
from tests.conformance.steps import Hold, Step
from tests.ui.chat_page import unique
from tests.ui.test_page import pytest_generate_tests, server  # noqa: F401 (what pytest looks for)

pytestmark = [pytest.mark.slow, pytest.mark.full, pytest.mark.page_only]
PROGRAMS = {"WebKitWebDriver": "webkit2gtk-driver", "Xvfb": "xvfb"}
# A container has neither a graphics card nor the rights for the sandbox.
VARIABLES = {
    "LIBGL_ALWAYS_SOFTWARE": "1",
    "WEBKIT_DISABLE_DMABUF_RENDERER": "1",
    "WEBKIT_DISABLE_SANDBOX_THIS_IS_DANGEROUS": "1",
}
FROM_END = """const shown = document.getElementById('transcript')
return shown.scrollHeight - shown.scrollTop - shown.clientHeight"""


class WebKit:
    """A window of WebKit."""

    def __init__(self, port: int) -> None:
        self.address = f"http://127.0.0.1:{port}"
        wait(lambda: self.call("GET", "/status")["ready"])
        (browser, *_) = sorted(Path("/usr/lib").glob("*/webkit2gtk-4.*/MiniBrowser"))
        options = {"binary": str(browser), "args": ["--automation"]}
        wanted = {"alwaysMatch": {"webkitgtk:browserOptions": options}}
        session = self.call("POST", "/session", {"capabilities": wanted})
        self.address += f"/session/{session['sessionId']}"

    def call(self, method: str, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = Request(self.address + path, data, method=method)
        with urlopen(request, timeout=60) as reply:
            return json.load(reply)["value"]

    def open(self, address: str) -> None:
        self.call("POST", "/url", {"url": address})
        wait(lambda: self.run("return document.getElementById('title').textContent"))

    def run(self, script: str, *arguments: object) -> Any:
        return self.call("POST", "/execute/sync", {"script": script, "args": [*arguments]})

    def type(self, text: str) -> None:
        script = """document.getElementById('prompt').value = arguments[0]
        document.getElementById('composer').requestSubmit()"""
        self.run(script, text)

    def committed(self, turn: int) -> None:
        last = "return document.querySelector('.agent:last-child .outcome')?.textContent ?? ''"
        wait(lambda: f"committed as turn {turn}" in self.run(last))

    def frames(self) -> None:
        """Wait until what was changed has been drawn, and scrolled."""
        time.sleep(0.3)


def wait(is_true: Any, seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with suppress(URLError, ConnectionError):
            if is_true():
                return
        time.sleep(0.05)
    pytest.fail("WebKit did not come that far")


@pytest.fixture(scope="module")
def driver() -> Iterator[int]:
    missing = [package for program, package in PROGRAMS.items() if not shutil.which(program)]
    if missing:
        pytest.skip(f"apt-get install {' '.join(missing)}")
    reader, writer = os.pipe()
    screen = subprocess.Popen(
        ["Xvfb", "-displayfd", str(writer), "-screen", "0", "1280x900x24"],
        pass_fds=[writer],
        stderr=subprocess.DEVNULL,
    )
    os.close(writer)
    with os.fdopen(reader) as numbers:
        display = f":{numbers.readline().strip()}"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment = {**os.environ, **VARIABLES, "DISPLAY": display}
    process = subprocess.Popen(["WebKitWebDriver", f"--port={port}"], env=environment)
    yield port
    for each in (process, screen):
        each.terminate()
        each.wait()


@pytest.fixture
def webkit(driver: int, server: Server) -> Iterator[WebKit]:
    webkit = WebKit(driver)
    webkit.open("http://{}:{}".format(*server.address))
    yield webkit
    webkit.call("DELETE", "")


REPLY = "".join(
    f"## Part {part}\n\nSome **words** and `code` of it.\n\n"
    + "- an item\n" * 3
    + "\n```py\n"
    + "print()\n" * 4
    + "```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n"
    for part in range(2)
)


def stream(provider: Provider, prompt: str, seconds: float) -> threading.Thread:
    """Let the provider answer in small pieces; return the thread that lets them go."""
    pieces = [REPLY[at : at + 12] for at in range(0, len(REPLY), 12)]
    gates = [threading.Event() for _ in pieces]
    step: Step = [part for pair in zip(pieces, map(Hold, gates), strict=True) for part in pair]
    provider.script(prompt, step)

    def release() -> None:
        for gate in gates:
            time.sleep(seconds)
            gate.set()

    thread = threading.Thread(target=release)
    thread.start()
    return thread


def test_the_page_follows_a_reply_that_arrives(webkit: WebKit, provider: Provider) -> None:
    behind = []
    for turn in range(1, 25):
        prompt = unique("follow")
        provider.script(prompt, [REPLY[at : at + 40] for at in range(0, len(REPLY), 40)])
        webkit.type(prompt)
        webkit.committed(turn)
        webkit.frames()
        behind.append(webkit.run(FROM_END))
    assert max(behind) < 40, behind


def test_scrolling_up_stops_automatic_scrolling(webkit: WebKit, provider: Provider) -> None:
    for turn in (1, 2):
        prompt = unique("before")
        provider.script(prompt, [REPLY])
        webkit.type(prompt)
        webkit.committed(turn)
    prompt = unique("read")
    thread = stream(provider, prompt, 0.05)
    webkit.type(prompt)
    wait(lambda: webkit.run("return document.querySelectorAll('.agent:last-child h4').length > 0"))
    wheel = {"type": "scroll", "duration": 0, "x": 700, "y": 300, "deltaX": 0, "deltaY": -400}
    actions = [{"type": "wheel", "id": "wheel", "actions": [wheel]}]
    webkit.call("POST", "/actions", {"actions": actions})
    webkit.frames()
    place = "return document.getElementById('transcript').scrollTop"
    before = webkit.run(place)
    assert webkit.run(FROM_END) > 100
    thread.join()
    webkit.committed(3)
    webkit.frames()
    assert webkit.run(place) == before


def test_a_long_conversation_is_scrolled_back_without_jumps(
    webkit: WebKit, provider: Provider
) -> None:
    for turn in range(1, 13):
        prompt = unique("long")
        provider.script(prompt, [REPLY])
        webkit.type(prompt)
        webkit.committed(turn)
    webkit.call("POST", "/refresh", {})
    webkit.committed(12)
    webkit.frames()
    jumps = []
    step = """const transcript = document.getElementById('transcript')
    const middle = transcript.getBoundingClientRect()
    const node = document.elementFromPoint(middle.x + middle.width / 2, middle.y + 20)
    window.shown = [node, node.getBoundingClientRect().y]
    transcript.scrollTop -= 300"""
    for _ in range(15):
        webkit.run(step)
        webkit.frames()
        jumps.append(webkit.run("return shown[0].getBoundingClientRect().y - shown[1] - 300"))
    assert max(map(abs, jumps)) < 2, jumps
