"""What the stored messages of this agent's framework look like."""

from collections.abc import Sequence
from typing import Any

from pydantic import TypeAdapter, ValidationError
from strands.types.content import ContentBlock, Message

from ..contract import is_blank
from .memories import Item

_MESSAGES = TypeAdapter(list[Message])
_KINDS = ContentBlock.__annotations__.keys()


def are_messages(messages: Any) -> bool:
    """Whether these are messages of this framework, beginning with a prompt."""
    try:
        read = _MESSAGES.validate_python(messages)
    except ValidationError:
        return False
    blocks = [block for message in messages for block in message["content"]]
    if not all(message["content"] for message in read):
        return False
    is_own = all(block.keys() <= _KINDS for block in blocks)
    return is_own and any("text" in m["content"][0] for m in read if m["role"] == "user")


def spoken(messages: Sequence[Message]) -> list[Item]:
    """What was said in these messages, without what tools were told and answered."""
    return [
        ("USER" if message["role"] == "user" else "ASSISTANT", block["text"])
        for message in messages
        for block in message["content"]
        if not is_blank(block.get("text", ""))
    ]
