"""A page that talks to /api/chat: what it does is run by the client of the AI SDK itself."""

import itertools
import json
import subprocess
import threading
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from tests.conformance.chat import CANARY
from tests.conformance.client import Reply
from tests.conformance.server import Server
from tests.installed import NODE, environment

PATH = "/api/chat"
SCRIPT = Path(__file__).parent / "page.mjs"
_numbers = itertools.count(1)
Step = dict[str, Any]


def unique(text: str) -> str:
    """A prompt that no log may have, and no other test."""
    return f"{text} {CANARY}ui{next(_numbers)}"


class Page:
    """The chat of one page; `act` does what a user does there, and says what each step came to."""

    def __init__(
        self, server: Server, headers: Mapping[str, str] | None = None, sends: str = ""
    ) -> None:
        """`sends`: "whole" or "last", of its messages; such a page stays open between acts."""
        self.server, self.headers, self.id = server, dict(headers or {}), f"chat-{next(_numbers)}"
        self.more = {"sends": sends, "name": self.id} if sends else {}

    def act(self, *steps: Step) -> list[Step]:
        """Each outcome has status, error, messages, and the parts of the reply with isDone."""
        host, port = self.server.address
        script = {"url": f"http://{host}:{port}{PATH}", "id": self.id, "headers": self.headers}
        script |= self.more
        outcomes = run({**script, "steps": steps})
        for outcome in outcomes:
            if outcome["read"] and outcome["messages"]:
                assert outcome["read"] == outcome["messages"][-1]
        return outcomes

    def history(self, headers: Mapping[str, str] | None = None) -> list[Step]:
        """The messages of the session, as a page that was loaded again gets them."""
        reply = self.get(headers or self.headers)
        assert reply.status == 200, reply
        messages: list[Step] = reply.json
        return messages

    def get(self, headers: Mapping[str, str]) -> Reply:
        return self.server.get(f"{PATH}?id={self.id}", headers)


@cache
def pages() -> "subprocess.Popen[str]":
    """The process that plays all pages of a test process, and ends with it."""
    command = [str(NODE), str(SCRIPT), str(environment("vercel-typescript") / "node_modules")]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
    )


def run(script: dict[str, Any]) -> list[Step]:
    """Play a script in that process, within two minutes."""
    process = pages()
    assert process.stdin
    assert process.stdout
    process.stdin.write(f"{json.dumps(script)}\n")
    process.stdin.flush()
    limit = threading.Timer(120, process.kill)
    limit.start()
    outcomes: list[Step] | dict[str, str] = json.loads(process.stdout.readline() or "{}")
    limit.cancel()
    assert isinstance(outcomes, list), outcomes
    return outcomes


def send(text: str, **more: Any) -> Step:
    return {"do": "send", "text": text, **more}


REGENERATE: Step = {"do": "regenerate"}
LOAD: Step = {"do": "load"}
RESUME: Step = {"do": "resume"}


def regenerate(at: int) -> Step:
    return {"do": "regenerate", "at": at}


def edit(at: int, text: str) -> Step:
    """Send another text in place of that of the message there, which has to be the user's."""
    return {"do": "edit", "at": at, "text": text}


def answer(*answers: bool | str) -> Step:
    """Answer the calls that wait, in their order: True approves, a text is why not."""
    told = [
        {"approved": one is True, **({"reason": one} if one is not True else {})} for one in answers
    ]
    return {"do": "answer", "answers": told}


def body(id: object, text: object = "hi", **more: object) -> dict[str, Any]:
    """What the transport of the SDK sends."""
    said = {"id": "m1", "role": "user", "parts": [{"type": "text", "text": text}]}
    return {"id": id, "messages": [said], "trigger": "submit-message", **more}


def texts(messages: list[Step]) -> list[str]:
    """The text of each message."""
    return ["".join(part.get("text", "") for part in one["parts"]) for one in messages]
