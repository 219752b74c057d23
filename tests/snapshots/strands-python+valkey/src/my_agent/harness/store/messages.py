"""The form of stored messages in Strands Agents."""

from typing import Any

from pydantic import TypeAdapter, ValidationError
from strands.types.content import ContentBlock, Message

_MESSAGES = TypeAdapter(list[Message])
_KINDS = ContentBlock.__annotations__.keys()


def are_messages(messages: Any) -> bool:
    """Whether `messages` are valid for this framework and include a prompt."""
    try:
        read = _MESSAGES.validate_python(messages)
    except ValidationError:
        return False
    blocks = [block for message in messages for block in message["content"]]
    if not all(message["content"] for message in read):
        return False
    is_own = all(block.keys() <= _KINDS for block in blocks)
    return is_own and any("text" in m["content"][0] for m in read if m["role"] == "user")
