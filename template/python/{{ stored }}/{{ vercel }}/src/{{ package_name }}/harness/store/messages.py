"""Validates stored messages of the AI SDK."""

from typing import Any

import ai
from pydantic import TypeAdapter, ValidationError

_MESSAGES = TypeAdapter(list[ai.messages.Message])


def are_messages(messages: Any) -> bool:
    """Return whether `messages` are valid for this framework and include a prompt."""
    try:
        parsed = _MESSAGES.validate_python(messages)
    except ValidationError:
        return False
    return any(message.role == "user" for message in parsed)
