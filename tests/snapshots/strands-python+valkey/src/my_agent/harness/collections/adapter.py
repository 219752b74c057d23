"""The messages of Strands that a model sees."""

import json
from base64 import b64encode
from collections.abc import Callable
from typing import Any

from strands import Agent
from strands.middleware import InvokeModelContext, InvokeModelStage
from strands.plugins import Plugin
from strands.types.content import Message


class ShowOnly(Plugin):
    """Reduces what the model calls of a turn are given; the agent keeps its messages."""

    name = "earlier-turns"

    def __init__(self, visible: Callable[..., list[Any]]) -> None:
        super().__init__()
        self._visible = visible

    def init_agent(self, agent: Agent) -> None:
        agent.add_middleware(InvokeModelStage.Input, self._show)

    async def _show(self, context: InvokeModelContext) -> InvokeModelContext:
        seen = self._visible(context.messages, _is_prompt, _without_tools, _size)
        return context.replace(messages=seen)


def show_only(options: dict[str, Any], visible: Callable[..., list[Any]]) -> None:
    """Let the agent of a turn show its model the messages that `visible` returns."""
    options["plugins"] = [*options.get("plugins", []), ShowOnly(visible)]


def _is_prompt(message: Message) -> bool:
    return message["role"] == "user" and "toolResult" not in message["content"][0]


def _without_tools(message: Message) -> Message:
    reply = message.copy()
    reply["content"] = [block for block in message["content"] if "text" in block]
    return reply


def _size(message: Message) -> int:
    return len(json.dumps(message["content"], default=_text, ensure_ascii=False))


def _text(value: Any) -> str:
    return b64encode(value).decode() if isinstance(value, bytes) else str(value)
