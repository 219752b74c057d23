"""The words of a provider script. A step is one model call: a list of parts, played in order.

    ["Hello, ", "world."]                                        a reply in two chunks
    ["Let me see. ", Call("word_count", {"text": "a b"})]        text, then a tool call
    ["Well, ", CUT]                                              a socket cut in mid-stream
    [Refuse(500)]                                                a failure before a byte

A plain string is one chunk of text. A step that names no end finishes normally.
"""

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Call:
    """The model calls a tool. `raw` replaces the arguments by a text that need not be JSON.

    Some models number the calls of each reply anew: `id` is one of those.
    """

    name: str
    arguments: dict[str, Any] = field(default_factory=dict)
    raw: str | None = None
    id: str = ""

    def text(self) -> str:
        return json.dumps(self.arguments) if self.raw is None else self.raw


@dataclass(frozen=True)
class End:
    """The model finishes: "stop", "tool", "length" or "filter"; others are sent as they are."""

    reason: str


@dataclass(frozen=True)
class Intervene:
    """A guardrail of Bedrock ends the reply; `trace` says what it found, as Converse does."""

    trace: dict[str, Any] | None = None


@dataclass(frozen=True)
class Refuse:
    """An HTTP error instead of a stream. Where it stays, a retry is refused, too.

    With status 200 it is the first event of a stream. `text` is what the provider says.
    """

    status: int
    code: str | None = None
    stays: bool = True
    text: str = ""  # in place of one that quotes the prompt
    after_ms: int = 20  # the wait that it asks for; vendor clients need not wait long here
    after: int = 0  # the same in seconds, as most providers say it


@dataclass(frozen=True)
class Fail:
    """An error event in the stream, of a kind in `kinds` of the wire, then a clean end."""

    kind: str


@dataclass(frozen=True)
class Think:
    """A part of the model's reasoning, of which nothing is shown."""

    text: str


@dataclass(frozen=True)
class Hold:
    """Silence until the gate opens or the client goes away."""

    gate: threading.Event


@dataclass(frozen=True)
class Drip:
    """Chunks of one character, one every so many milliseconds."""

    count: int
    every_ms: int


@dataclass(frozen=True)
class Flood:
    """As many chunks as the client takes, each of `size` characters."""

    count: int
    size: int


@dataclass(frozen=True)
class Sign:
    """A part that needs no more than its name."""

    name: str


OPEN = Sign("open")  # the status 200 and its headers, and nothing yet
CUT = Sign("cut")  # the socket closes; the chunked body has no end
FADE = Sign("fade")  # the body ends cleanly, but with no finish reason: a proxy gave up
ERROR = Sign("error")  # an error event in the stream, then a clean end
DROP = Sign("drop")  # the socket closes before a status line; it stays, like Refuse
JUNK = Sign("junk")  # a chunk of "a", a byte that is not UTF-8, and half of a character
GARBLE = Sign("garble")  # an event that is no JSON, and quotes the prompt, then a clean end
HANG = Hold(threading.Event())  # silence for ever

Part = str | Call | End | Fail | Intervene | Refuse | Think | Hold | Drip | Flood | Sign
Step = Sequence[Part]


def stays(step: Step) -> bool:
    """Whether a step is also the answer to a vendor client's retry."""
    first = step[0] if step else None
    is_refused = isinstance(first, Refuse) and first.stays
    return first is DROP or is_refused or any(isinstance(part, Fail) for part in step)
