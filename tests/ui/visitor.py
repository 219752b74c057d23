"""Somebody who uses the page, and sees whatever a browser would only tell its console."""

import json
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, ConsoleMessage, Locator, Request

from tests.conformance.client import ACTOR
from tests.conformance.provider import Provider
from tests.conformance.server import Server
from tests.conformance.steps import Step
from tests.ui.browser import PATIENCE

WATCH = """addEventListener('securitypolicyviolation', ({violatedDirective, blockedURI}) =>
    console.error(`policy: ${violatedDirective} ${blockedURI}`))"""


class Visitor:
    """A browser of its own: with other cookies, other storage and one tab."""

    def __init__(
        self, browser: Browser, server: Server, provider: Provider, **options: Any
    ) -> None:
        self.provider, self.origin = provider, "http://{}:{}".format(*server.address)
        self.requests: list[Request] = []
        self.problems: list[str] = []
        self.context = browser.new_context(**options)
        self.context.add_init_script(WATCH)
        self.page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE)
        self.page.on("request", lambda request: self.requests.append(request))
        self.page.on("console", self._read)
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("dialog", lambda dialog: self.problems.append(f"dialog: {dialog.message}"))
        self.page.goto(self.origin)

    def leave(self) -> None:
        """Close the browser; nothing may have run, failed or left the origin."""
        self.context.close()
        assert self.problems == []
        origins = {"{0.scheme}://{0.netloc}".format(urlsplit(one.url)) for one in self.requests}
        assert origins == {self.origin}

    def _read(self, message: ConsoleMessage) -> None:
        # A status that is an error is in the console, too.
        if message.type in {"error", "warning"} and "Failed to load" not in message.text:
            self.problems.append(message.text)

    def type(self, text: str) -> None:
        self.page.get_by_label("Message").fill(text)
        self.page.keyboard.press("Enter")

    def say(self, text: str, *steps: Step) -> None:
        """Send a prompt, with the provider's steps for it."""
        if steps:
            self.provider.script(text, *steps)
        self.type(text)

    def sees(self, text: str) -> Locator:
        """Wait until this text can be seen."""
        found = self.page.locator("main, dialog").get_by_text(text).filter(visible=True).last
        found.wait_for()
        return found

    def committed(self, turn: int) -> None:
        self.page.locator(".outcome", has_text=f"committed as turn {turn}").last.wait_for()

    def failed(self, type: str) -> Locator:
        """Wait until a failure of this type is shown."""
        failure = self.page.locator(".failure", has_text=type)
        failure.get_by_text("this session is unchanged").wait_for()
        return failure

    def try_again(self) -> None:
        (button,) = self.page.get_by_role("button", name="Try again").all()
        button.click()

    @property
    def session(self) -> str:
        return str(self.page.evaluate("location.hash.slice(1)"))

    @property
    def posted(self) -> list[Any]:
        """The bodies of POST /api/chat."""
        posts = [one for one in self.requests if one.method == "POST" and "chat" in one.url]
        return [json.loads(one.post_data or "") for one in posts]

    def kept(self, server: Server, actor: str = "") -> list[Any]:
        """What the server has of the session: the texts of each message."""
        path = f"/api/chat?id={self.session}"
        messages = server.get(path, {ACTOR: actor} if actor else ()).json
        return ["".join(part.get("text", "") for part in one["parts"]) for one in messages]
