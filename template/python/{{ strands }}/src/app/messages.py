"""The messages of a turn, which cost the SDK less here: when it copies and when it traces them."""

from base64 import urlsafe_b64decode
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
    """Make bytes of what is base64 in the stored data of a session, such as images."""
    pending = data.get("interrupt_state", {}).get("pending_tool_execution") or {}
    for message in [*data["messages"], pending.get("assistant_message", {"content": []})]:
        decode_content(message["content"])
    for result in pending.get("completed_tool_results", []):
        decode_content(result["content"])


def decode_content(content: list[Any]) -> None:
    """Make bytes of media and of encrypted reasoning. Raises ValueError."""
    for block in content:
        for kind, value in block.items():
            if kind == "toolResult":
                decode_content(value["content"])
            elif kind in {"audio", "document", "image", "video"} and "bytes" in value["source"]:
                value["source"]["bytes"] = urlsafe_b64decode(value["source"]["bytes"])
            elif kind == "reasoningContent" and "redactedContent" in value:
                value["redactedContent"] = urlsafe_b64decode(value["redactedContent"])


# The SDK makes JSON of all messages twice for each call of the model, also for spans that nobody
# records. The name is private: an SDK that has another one does what it did.
_add: Any = getattr(Tracer, "_add_event_messages", None)


def _add_if_recorded(tracer: Tracer, span: Any, messages: Any) -> None:
    if span.is_recording():
        _add(tracer, span, messages)


if _add:
    Tracer._add_event_messages = _add_if_recorded  # type: ignore[assignment,method-assign]
