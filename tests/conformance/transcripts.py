"""Answers of model providers, as their servers send them, and what an agent makes of each.

A file of `replayed/API/` is one transcript: `answers` are what the provider sends in turn, one
after another, and `expect` what becomes of the turn. A part of an answer is a string, sent as it
is, or JSON, sent as the API frames it. Of Chat Completions a part with `delta` or `finish_reason`
is the only choice of a chunk. `{"cut": true}` ends the connection, `{"hex": …}` are bytes.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from tests.conformance.vendor_wires import Converse, Gateway, Messages, frame
from tests.conformance.wires import ChatCompletions, Wire

REPLAYED = Path(__file__).with_name("replayed")
WIRES: dict[str, type[Wire]] = {
    wire.api: wire for wire in (ChatCompletions, Messages, Converse, Gateway)
}
# What only some providers have in a message, and demand back.
REASONING_FIELDS = {"reasoning_content", "reasoning", "reasoning_details", "extra_content"}
Call = list[Any]  # name and input


@dataclass(frozen=True)
class Answer:
    """One response; None among the parts ends the connection."""

    parts: list[bytes | None]
    content_type: str
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    stays: bool = False  # whether it is the answer to each later call, too


@dataclass(frozen=True)
class Expected:
    """What becomes of a turn. With none of `reply`, `tools`, `ok` and `error`, any end is right."""

    reply: str | None = None
    tools: list[Call] | None = None  # the calls in the history; they ran, unless `ran` says more
    ok: bool = False  # it completes
    error: bool | str = False  # it fails, with this type
    ran: list[Call] | None = None  # the calls that ran, if not `tools`
    sent: list[Call] | None = None  # the calls that may run: none but these
    warnings: int | None = 0  # one for each refused call; None: any number


@dataclass(frozen=True)
class Transcript:
    api: str
    name: str
    answers: list[Answer]
    expected: Expected
    demand: str = ""  # what the provider demands back with a call
    back: Any = None  # its exact value
    own: frozenset[str] = frozenset()  # the fields of a message that only this provider has
    raw: str = ""  # the arguments of a refused call


@cache
def transcripts(api: str) -> list[Transcript]:
    """All transcripts of an API."""
    stored = [_read(api, path) for path in sorted((REPLAYED / api).glob("*.json"))]
    return [*stored, *_broken(api)]


def _read(api: str, path: Path) -> Transcript:
    text = path.read_text("utf-8")
    case = json.loads(text)
    return Transcript(
        api=api,
        name=path.stem,
        answers=[_answer(api, answer) for answer in case["answers"]],
        expected=Expected(**case["expect"]),
        demand=case.get("demand", ""),
        back=case.get("back"),
        own=frozenset(name for name in REASONING_FIELDS if f'"{name}"' in text),
    )


def _answer(api: str, answer: dict[str, Any]) -> Answer:
    return Answer(
        parts=[_part(api, part) for part in answer["parts"]],
        content_type=answer.get("type", WIRES[api].content_type),
        status=answer.get("status", 200),
        headers=answer.get("headers", {}),
        stays=answer.get("stays", False),
    )


def _part(api: str, part: Any) -> bytes | None:
    if isinstance(part, str):
        return part.encode()
    if isinstance(part, list):
        name, value, *kind = part
        return frame(name, value, *kind)
    if part.get("cut"):
        return None
    if "hex" in part:
        return bytes.fromhex(part["hex"])
    if api == "chat" and {"delta", "finish_reason"} & part.keys():
        choice = {"index": 0, "finish_reason": None, **part}
        head = {"id": "chatcmpl-7", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        part = {**head, "choices": [choice]}
    event = f"event: {part['type']}\n" if api == "anthropic" else ""
    return f"{event}data: {json.dumps(part)}\n\n".encode()


def _broken(api: str) -> Iterator[Transcript]:
    """Yield a call with each kind of arguments that are not one JSON object."""
    kinds = json.loads((REPLAYED / "broken_arguments.json").read_text("utf-8"))
    for name, raw in kinds.items():
        wire = WIRES[api]()
        parts = [wire.start(), wire.call(0, "call_1", "delete_orders", raw), wire.finish("tool")]
        yield Transcript(
            api=api,
            name=f"arguments, {name}",
            answers=[Answer([*parts], wire.content_type)],
            expected=Expected(ok=True, ran=[], warnings=1),
            raw=raw,
        )
