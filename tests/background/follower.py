"""A client of background turns: it starts, follows and stops them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import Any

from tests.conformance.chat import Chat
from tests.conformance.client import Exchange, Reply
from tests.conformance.server import Server
from tests.conformance.steps import Step


@dataclass(frozen=True)
class Event:
    """An event with its id: `name` is "message" for a part of the reply."""

    id: str
    name: str
    data: Any

    @property
    def error(self) -> str:
        """The type of an error."""
        assert self.name == "error", self
        return str(self.data["error"]["type"])


class Follower:
    """A stream that is read event by event."""

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange

    @property
    def status(self) -> int:
        return self.exchange.head().status

    def next(self) -> Event | None:
        """Wait for the next event, or for the end: None."""
        id, name, data = "", "message", ""
        for line in iter(self.exchange.head().readline, b""):
            field, _, value = line.decode().rstrip("\n").partition(": ")
            if field == "id":
                id = value
            elif field == "event":
                name = value
            elif field == "data":
                data = value
            elif not field and data:
                return Event(id, name, json.loads(data))
        return None

    def rest(self) -> list[Event]:
        """Read to the end."""
        return list(iter(self.next, None))

    def leave(self) -> None:
        self.exchange.leave()


def end_of_head(server: Server, path: str, headers: Mapping[str, str] | None = None) -> int:
    """Send a HEAD request, wait for its end, and return its status."""
    connection = HTTPConnection(*server.address, timeout=5)
    connection.request("HEAD", path, headers=dict(headers or {}))
    response = connection.getresponse()
    assert response.read() == b""
    connection.request("GET", "/ping")  # the answer comes after the end of the first
    assert connection.getresponse().status == 200
    connection.close()
    return response.status


class Background(Chat):
    """A session whose turns run in the background."""

    def begin(self, text: str, *steps: Step, headers: dict[str, str] | None = None) -> str:
        """Start a background turn and return its id."""
        reply = self.try_begin(text, *steps, headers=headers)
        assert reply.status == 202, reply
        assert reply.session == self.session
        body = reply.json
        assert body.pop("session_id") == self.session
        turn_id = body.pop("turn_id")
        assert body == {}
        return str(turn_id)

    def try_begin(self, text: str, *steps: Step, headers: dict[str, str] | None = None) -> Reply:
        """Start a background turn and return the response."""
        if steps:
            self.script(text, *steps)
        return self.post({"prompt": text + self.tag, "background": True}, headers)

    def follow(
        self,
        last_id: str = "",
        server: Server | None = None,
        headers: dict[str, str] | None = None,
    ) -> Follower:
        """Follow the newest turn, at another server perhaps."""
        body: dict[str, object] = {"follow": True}
        sent = {**self.headers, **(headers or {})}
        if last_id:
            sent["Last-Event-ID"] = last_id
        return Follower((server or self.server).send(body, sent))

    def stop(self, server: Server | None = None) -> bool:
        """Stop the running turn; return whether one ran."""
        reply = (server or self.server).post({"stop": True}, self.headers)
        assert reply.status == 200, reply
        assert reply.json["session_id"] == self.session
        return bool(reply.json["stopped"])

    def on(self, server: Server) -> "Background":
        """The same session, at another server."""
        other = Background(server, self.provider, self.session, self.actor)
        other.tag = self.tag
        return other
