"""The form of stored messages in the AI SDK."""

from typing import Any

import ai
from pydantic import TypeAdapter, ValidationError

_MESSAGES = TypeAdapter(list[ai.messages.Message])


def are_messages(messages: Any) -> bool:
    """Whether `messages` are valid for this framework and include a prompt."""
    try:
        read = _MESSAGES.validate_python(messages)
    except ValidationError:
        return False
    return any(message.role == "user" for message in read)
