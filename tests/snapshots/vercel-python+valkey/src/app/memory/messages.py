"""What the stored messages of this agent's framework look like."""

from collections.abc import Sequence
from typing import Any

import ai
from pydantic import TypeAdapter, ValidationError

from ..contract import is_blank
from .memories import Item

_MESSAGES = TypeAdapter(list[ai.messages.Message])


def are_messages(messages: Any) -> bool:
    """Whether these are messages of this framework, beginning with a prompt."""
    try:
        read = _MESSAGES.validate_python(messages)
    except ValidationError:
        return False
    return any(message.role == "user" for message in read)


def spoken(messages: Sequence[ai.messages.Message]) -> list[Item]:
    """What was said in these messages, without what tools were told and answered."""
    return [
        ("USER" if message.role == "user" else "ASSISTANT", part.text)
        for message in messages
        for part in message.parts
        if part.kind == "text" and not is_blank(part.text)
    ]
