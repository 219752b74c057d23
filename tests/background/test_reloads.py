"""Pages with the real clients, in React and Chromium, that reload while a turn runs.

One page is that of docs/use-chat.md, the other one has assistant-ui.
"""

import json
import random
import subprocess
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from uuid import uuid4

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.background.test_page import browser  # noqa: F401 (a fixture)
from tests.conformance.provider import Provider
from tests.conformance.server import Fleet
from tests.conformance.steps import Drip, Hold, Part
from tests.conformance.targets import Target
from tests.installed import NODE, packages
from tests.ui.browser import PATIENCE
from tests.ui.chat_page import texts, unique
from tests.ui.test_chat_route import ASSISTANT
from tests.ui.test_readme_page import page_of

PACKAGES = {
    **ASSISTANT,
    "@ai-sdk/react": "^4.0.177",
    "ai": "^7.0.173",
    "esbuild": "^0.28",
    "react-dom": "^19.2.1",
}
# In development, React's strict mode runs each effect twice.
MAIN = """import { StrictMode } from 'react'
import { createRoot } from 'react-dom/client'
import Page from './page.tsx'
createRoot(document.body).render(<StrictMode><Page /></StrictMode>)
"""
BUILD = """import { build } from 'esbuild'
const options = { bundle: true, jsx: 'automatic', outfile: 'main.js', logLevel: 'warning' }
await build({ entryPoints: ['main.tsx'], ...options })
"""
HTML = "<!doctype html><title>A page</title><body></body><script src=main.js></script>"


class Quiet(SimpleHTTPRequestHandler):
    """The server of the page: another origin than that of the agent."""

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """The folder of a page, and its origin."""
    handler = partial(Quiet, directory=tmp_path)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield tmp_path, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def use_chat_page(target: Target) -> str:
    return page_of(target.project())


def assistant_page(target: Target) -> str:  # noqa: ARG001
    return Path(__file__).with_name("assistant_page.tsx").read_text()


def bundle(folder: Path, page: str, api: str, id: str) -> None:
    """Write the page for this address and this session."""
    for old, new in (("http://localhost:8080/api/chat", api), ("my-session", id)):
        assert old in page
        page = page.replace(old, new)
    modules = packages(json.dumps({"private": True, "dependencies": PACKAGES}).encode())
    (folder / "node_modules").symlink_to(modules)
    (folder / "page.tsx").write_text(page)
    (folder / "main.tsx").write_text(MAIN)
    (folder / "index.html").write_text(HTML)
    subprocess.run([str(NODE), "--input-type=module", "-e", BUILD], cwd=folder, check=True)


@pytest.fixture
def tab(browser: Browser) -> Iterator[Page]:  # noqa: F811
    context = browser.new_context()
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    yield page
    context.close()


@pytest.mark.full
@pytest.mark.parametrize("reloads", [5, 20])
@pytest.mark.parametrize("source", [use_chat_page, assistant_page])
def test_a_page_that_reloads_again_and_again_shows_the_reply_once(
    fleet: Fleet,
    target: Target,
    provider: Provider,
    folder: tuple[Path, str],
    tab: Page,
    source: Callable[[Target], str],
    reloads: int,
) -> None:
    """The reply has three chunks for each reload, at a random moment of which the page reloads."""
    path, origin = folder
    server = fleet.shared(ALLOWED_ORIGINS=origin)
    id, prompt = f"page-{uuid4()}", unique("Slowly.")
    bundle(path, source(target), "http://{}:{}/api/chat".format(*server.address), id)
    gates = [threading.Event() for _ in range(reloads)]
    steps, reply = list[Part](), list[str]()
    for number, gate in enumerate(gates):
        steps += [f"{number}, ", Drip(1, 20), f" {number} and ", Hold(gate)]
        reply.append(f"{number}, . {number} and ")
    provider.script(prompt, [*steps, "the end."])

    shown = tab.locator("p")
    replies = shown.filter(has_text="assistant: ")
    tab.goto(origin)
    tab.get_by_label("Message").fill(prompt)
    tab.keyboard.press("Enter")
    for number, gate in enumerate(gates):
        expect(replies).to_have_text([f"assistant: {''.join(reply[: number + 1])}"])
        threading.Timer(random.uniform(0, 0.5), gate.set).start()
        tab.wait_for_timeout(random.uniform(0, 300))
        tab.reload()
    call = provider.calls_for(prompt)[0]
    provider.wait("the end of the call", lambda: call.outcome != "running")
    while server.get(f"/api/chat/{id}/stream").status != 204:
        tab.wait_for_timeout(20)
    tab.reload()
    whole = "".join([*reply, "the end."])
    expect(shown).to_have_text([f"user: {prompt}", f"assistant: {whole}"])
    assert texts(server.get(f"/api/chat?id={id}").json) == [prompt, whole]
    assert provider.calls_for(prompt) == [call]
