"""Validates stored messages of Strands Agents."""

from typing import Any

from pydantic import TypeAdapter, ValidationError
from strands.types.content import ContentBlock, Message

_MESSAGES = TypeAdapter(list[Message])
_BLOCK_TYPES = ContentBlock.__annotations__.keys()


def are_messages(messages: Any) -> bool:
    """Return whether `messages` are valid for this framework and include a prompt."""
    try:
        parsed = _MESSAGES.validate_python(messages)
    except ValidationError:
        return False
    blocks = [block for message in messages for block in message["content"]]
    if not all(message["content"] for message in parsed):
        return False
    has_only_known_types = all(block.keys() <= _BLOCK_TYPES for block in blocks)
    return has_only_known_types and any(
        "text" in m["content"][0] for m in parsed if m["role"] == "user"
    )
