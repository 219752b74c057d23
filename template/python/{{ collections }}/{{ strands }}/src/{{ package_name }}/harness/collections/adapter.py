"""Select the Strands messages that a model sees."""

import json
from base64 import b64encode
from collections.abc import Callable
from typing import Any

from strands import Agent
from strands.middleware import InvokeModelContext, InvokeModelStage
from strands.plugins import Plugin
from strands.types.content import Message


class ShowOnly(Plugin):
    """Limits the messages of each model call; the agent's own messages do not change."""

    name = "earlier-turns"

    def __init__(self, visible: Callable[..., list[Any]]) -> None:
        super().__init__()
        self._visible = visible

    def init_agent(self, agent: Agent) -> None:
        agent.add_middleware(InvokeModelStage.Input, self._show)

    async def _show(self, context: InvokeModelContext) -> InvokeModelContext:
        shown = self._visible(context.messages, _is_prompt, _without_tools, _size)
        return context.replace(messages=shown)


def show_only(options: dict[str, Any], visible: Callable[..., list[Any]]) -> None:
    """Show the turn's model only the messages that `visible` returns."""
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
