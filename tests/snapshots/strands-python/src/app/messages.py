"""The messages of a turn: quick for the SDK to copy and to trace, and with bytes after a load."""

from base64 import urlsafe_b64decode
from contextlib import suppress
from copy import deepcopy
from typing import Any

from strands.telemetry.tracer import Tracer


class Messages(list[Any]):
    """Messages; the SDK copies them all, more than once, for each call of the model.

    A copy shares nothing that can change with the original, as that of `copy.deepcopy`.
    """

    def __deepcopy__(self, memo: dict[int, Any]) -> "Messages":
        return Messages(map(_copied, self))


def _copied(value: Any) -> Any:
    kind = type(value)
    if kind is dict:
        return {name: _copied(one) for name, one in value.items()}
    if kind is list:
        return [_copied(one) for one in value]
    return value if kind in {str, int, float, bool, bytes, type(None)} else deepcopy(value)


def decode(data: dict[str, Any]) -> None:
    """Make bytes of what is base64 in a stored session: media, and encrypted reasoning."""
    pending = data.get("interrupt_state", {}).get("pending_tool_execution") or {}
    waiting = [pending["assistant_message"]] if pending else []
    for message in [*data["messages"], *waiting, *pending.get("completed_tool_results", [])]:
        _decode_content(message["content"])


def _decode_content(content: list[Any]) -> None:
    for block in content:
        for kind, value in block.items():
            if kind == "toolResult":
                _decode_content(value["content"])
            elif kind in {"audio", "document", "image", "reasoningContent", "video"}:
                holder = value.get("source", value)
                name = "bytes" if "source" in value else "redactedContent"
                with suppress(ValueError):  # what is no base64 stays as it is
                    if isinstance(holder.get(name), str):
                        holder[name] = urlsafe_b64decode(holder[name])


# The SDK makes JSON of all messages twice for each call of the model, also for spans that nobody
# records. The name is private: an SDK that has another one does what it did.
_add: Any = getattr(Tracer, "_add_event_messages", None)


def _add_if_recorded(tracer: Tracer, span: Any, messages: Any) -> None:
    if span.is_recording():
        _add(tracer, span, messages)


if _add:
    Tracer._add_event_messages = _add_if_recorded  # type: ignore[assignment,method-assign]
