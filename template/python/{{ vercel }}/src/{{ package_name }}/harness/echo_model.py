"""The built-in echo model: repeats prompts, and calls a tool on request."""

import json
import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from typing import Any, Literal

import ai
from ai import events

from .file_parts import files_in


class Offline(ai.Provider[None]):
    """Repeats the conversation; the same conversation has the same reply."""

    provider_class_id: Literal["offline"] = "offline"
    name: str = "offline"
    default_base_url: str = ""

    async def stream(
        self,
        model: ai.Model,
        messages: list[ai.messages.Message],
        *,
        tools: Sequence[ai.Tool] | None = None,
        **_: Any,
    ) -> AsyncGenerator[events.Event]:
        prompts = [message.text for message in messages if message.role == "user"]
        results = messages[-1].tool_results
        call = None if results else re.fullmatch(r"use ([\w-]+): (.*)", prompts[-1], re.DOTALL)
        yield events.StreamStart()
        if call:
            schemas = {tool.name: tool.spec.params for tool in tools or [] if tool.spec}
            arguments = _arguments(call[2], schemas.get(call[1], {}))
            id = f"call_{len(messages)}"
            yield events.ToolStart(tool_call_id=id, tool_name=call[1])
            yield events.ToolDelta(tool_call_id=id, chunk=arguments)
            yield events.ToolEnd(tool_call_id=id, tool_call=ai.messages.DUMMY_TOOL_CALL)
        else:
            reply = ["I am the offline model, not a language model: I repeat what I am told."]
            reply += [f' Earlier you said: "{text}"' for text in prompts[-5:-1]]
            reply += [f' Now you said: "{prompts[-1]}"']
            files = files_in(messages[-1].parts)
            reply += [f" You attached {it.media_type} ({len(it.data)} bytes)." for it in files]
            reply += [f" The tool answered: {result.result}" for result in results]
            yield events.TextStart()
            for sentence in reply:
                yield events.TextDelta(chunk=sentence)
            yield events.TextEnd()
        yield events.StreamEnd(finish_reason="tool_call" if call else "stop")


def _arguments(text: str, schema: dict[str, Any]) -> str:
    """Return a JSON object unchanged; pass any other text as the tool's first parameter."""
    with suppress(ValueError):
        if isinstance(json.loads(text), dict):
            return text
    parameters: dict[str, Any] = schema.get("properties") or {"text": {}}
    name, form = next(iter(parameters.items()))
    return json.dumps({name: [text] if form.get("type") == "array" else text})


class OfflineModel(ai.Model):
    """The model of projects without MODEL."""

    id: str = "offline"
    provider: ai.Provider[Any] = Offline()
