"""A session as a test sees it: what is said, what comes back, and what the provider is told.

Every prompt of a Chat ends in a canary that no other Chat has. It is taken off wherever the Chat's
own texts are looked at, so a text of another session stands out in a comparison; and no log may
ever show one.
"""

import itertools
import uuid
from collections.abc import Mapping
from typing import Any

from tests.conformance.client import ACTOR, SESSION, Exchange, Reply
from tests.conformance.provider import ModelCall, Provider
from tests.conformance.server import Server
from tests.conformance.steps import Step
from tests.conformance.targets import MODELS
from tests.conformance.wires import DETAIL, Entry

CANARY = "canary"
_numbers = itertools.count(1)


class Chat:
    def __init__(
        self,
        server: Server,
        provider: Provider,
        session: str | None = None,
        actor: str | None = None,
    ) -> None:
        self.server, self.provider = server, provider
        self.session = session or f"session-{uuid.uuid4()}"
        self.actor = actor
        self.tag = f" {CANARY}{next(_numbers)}"

    @property
    def headers(self) -> dict[str, str]:
        actor = {ACTOR: self.actor} if self.actor else {}
        return {SESSION: self.session, **actor}

    def start(
        self,
        text: str,
        *steps: Step,
        endless: bool = False,
        headers: Mapping[str, str] | None = None,
    ) -> Exchange:
        """Send a prompt, with the provider's steps for it, and do not wait for the reply."""
        if steps:
            self.provider.script(text + self.tag, *steps, endless=endless)
        return self.server.send({"prompt": text + self.tag}, {**self.headers, **(headers or {})})

    def say(
        self,
        text: str,
        *steps: Step,
        endless: bool = False,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        return self.start(text, *steps, endless=endless, headers=headers).reply()

    def script(self, text: str, *steps: Step) -> None:
        """What the provider does when it is told this text."""
        self.provider.script(text + self.tag, *steps)

    def send(self, body: object, headers: Mapping[str, str] | None = None) -> Exchange:
        """Send a body that is no prompt alone, and do not wait for the reply."""
        return self.server.send(body, {**self.headers, **(headers or {})})

    def post(self, body: object, headers: Mapping[str, str] | None = None) -> Reply:
        return self.send(body, headers).reply()

    def replace(
        self,
        number: object,
        text: str,
        *steps: Step,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """Replace a turn and all after it by one with this prompt."""
        if steps:
            self.script(text, *steps)
        return self.post({"replace_turn": number, "prompt": text + self.tag}, headers)

    def elsewhere(self, server: Server | None = None, session: str | None = None) -> "Chat":
        """The same words, told to another server or in another session."""
        session = session or self.session
        other = Chat(server or self.server, self.provider, session, self.actor)
        other.tag = self.tag
        return other

    def end(self, headers: Mapping[str, str] | None = None) -> Reply:
        return self.post({"end_session": True}, headers)

    def calls(self, text: str) -> list[ModelCall]:
        """The provider's calls so far for this prompt."""
        return self.provider.calls_for(text + self.tag)

    def call(self, text: str, number: int = 1) -> ModelCall:
        """Wait until the provider has the call for this prompt."""
        what = f"call {number} for {text!r}"
        self.provider.wait(what, lambda: len(self.calls(text)) >= number)
        return self.calls(text)[number - 1]

    def gone(self, text: str) -> None:
        """Wait until the provider sees that nobody reads this prompt's last call any more."""
        call = self.calls(text)[-1]
        self.provider.wait(f"an end of the call for {text!r}", lambda: call.outcome != "running")
        assert call.outcome == "gone", call

    def history(self, call: ModelCall) -> list[Entry]:
        """What the provider was told in a call, without this Chat's canary."""
        return [tuple(self._plain(part) for part in entry) for entry in call.history]

    def recalled(self, text: str = "What do you remember?") -> list[Entry]:
        """Run one more turn and return the history that the provider received before it."""
        reply = self.say(text)
        assert reply.status == 200, reply
        history = self.history(self.calls(text)[-1])
        assert history[-1] == ("user", text)
        return history[:-1]

    def _plain(self, part: Any) -> Any:
        if isinstance(part, dict):
            return {name: self._plain(value) for name, value in part.items()}
        return part.replace(self.tag, "") if isinstance(part, str) else part


def echoed(*texts: str) -> list[Entry]:
    """The history of turns that the provider echoed."""
    turns = ((("user", text), ("assistant", f"You said: {text}")) for text in texts)
    return [entry for turn in turns for entry in turn]


def assert_done(
    reply: Reply, chunks: list[str], turn: int, session: str, model: str | None = None
) -> None:
    """The turn was committed, and the client saw exactly this as events.

    Without `model`, the reply names that of its target; a replay has none: "".
    """
    assert reply.status == 200, reply
    assert reply.content_type == "text/event-stream"
    assert reply.session == session
    *messages, (event, done) = reply.events
    assert messages == [("message", chunk) for chunk in chunks]
    assert event == "done"
    named = done.pop("model", "")
    assert named in MODELS if model is None else named == model
    assert done == {"session_id": session, "turn": turn}
    assert not reply.truncated


def assert_failed(
    reply: Reply,
    status: int,
    error: str,
    session: str | None,
    after: list[str] | None = None,
    names: str = "",
) -> None:
    """The turn failed: as this status, or as an event once these chunks were out.

    `names` is what the message quotes of the request.
    """
    assert reply.session == session, reply
    assert not reply.truncated, "a failure has an end, too"
    if after:
        assert reply.status == 200, reply
        assert reply.chunks == after
        name, data = reply.events[-1]
        assert (name, len(reply.events)) == ("error", len(after) + 1), reply
    else:
        assert reply.status == status, reply
        assert reply.content_type == "application/json"
        assert reply.headers["X-Content-Type-Options"] == "nosniff"
        data = reply.json
    assert list(data) == ["error"], data
    assert list(data["error"]) == ["type", "message"], data
    assert data["error"]["type"] == error, data
    message = data["error"]["message"]
    if names:
        assert names in message
        message = message.replace(names, "")
    assert_for_callers(message)


def assert_for_callers(message: str) -> None:
    """A message tells a caller something, and nothing about the inside."""
    assert isinstance(message, str)
    assert message.strip()
    for inside in (DETAIL, CANARY, "Traceback", "Exception", "Error(", ".py", ".ts", "127.0.0.1"):
        assert inside not in message
