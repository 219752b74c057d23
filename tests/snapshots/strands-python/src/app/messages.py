"""The messages of a turn, which cost the SDK less here: when it copies and when it traces them."""

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


# The SDK makes JSON of all messages twice for each call of the model, also for spans that nobody
# records. The name is private: an SDK that has another one does what it did.
_add: Any = getattr(Tracer, "_add_event_messages", None)


def _add_if_recorded(tracer: Tracer, span: Any, messages: Any) -> None:
    if span.is_recording():
        _add(tracer, span, messages)


if _add:
    Tracer._add_event_messages = _add_if_recorded  # type: ignore[assignment,method-assign]
