"""The built-in echo model: repeats prompts, and calls a tool on request."""

import json
import re
from collections.abc import AsyncGenerator, AsyncIterable
from contextlib import suppress
from typing import Any

from strands.models import Model
from strands.types.content import Messages
from strands.types.streaming import StreamEvent
from strands.types.tools import ToolSpec

from .file_parts import files_in


class OfflineModel(Model):
    """Repeats the conversation; the same conversation has the same reply."""

    def update_config(self, **model_config: Any) -> None:
        """Do nothing: the model has no options."""

    def get_config(self) -> dict[str, Any]:
        return {"model_id": "offline"}

    def structured_output(self, *args: Any, **kwargs: Any) -> AsyncGenerator[Any, None]:
        raise NotImplementedError

    async def stream(
        self, messages: Messages, tool_specs: list[ToolSpec] | None = None, *_: Any, **__: Any
    ) -> AsyncIterable[StreamEvent]:
        blocks = [block for m in messages if m["role"] == "user" for block in m["content"]]
        prompts = [block["text"] for block in blocks if "text" in block]
        results = [b["toolResult"]["content"] for b in messages[-1]["content"] if "toolResult" in b]
        call = None if results else re.fullmatch(r"use ([\w-]+): (.*)", prompts[-1], re.DOTALL)
        yield {"messageStart": {"role": "assistant"}}
        if call:
            tool: Any = {"name": call[1], "toolUseId": f"call_{len(messages)}"}
            yield {"contentBlockStart": {"start": {"toolUse": tool}}}
            schemas = {spec["name"]: spec["inputSchema"]["json"] for spec in tool_specs or []}
            arguments = _arguments(call[2], schemas.get(call[1], {}))
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": arguments}}}}
        else:
            yield {"contentBlockStart": {"start": {}}}
            reply = ["I am the offline model, not a language model: I repeat what I am told."]
            reply += [f' Earlier you said: "{text}"' for text in prompts[-5:-1]]
            reply += [f' Now you said: "{prompts[-1]}"']
            files = files_in(messages[-1])
            reply += [f" You attached {it.media_type} ({len(it.data)} bytes)." for it in files]
            reply += [f" The tool answered: {r[0].get('text', r[0])}" for r in results]
            for sentence in reply:
                yield {"contentBlockDelta": {"delta": {"text": sentence}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "tool_use" if call else "end_turn"}}


def _arguments(text: str, schema: dict[str, Any]) -> str:
    """Return a JSON object unchanged; pass any other text as the tool's first parameter."""
    with suppress(ValueError):
        if isinstance(json.loads(text), dict):
            return text
    parameters: dict[str, Any] = schema.get("properties") or {"text": {}}
    name, form = next(iter(parameters.items()))
    return json.dumps({name: [text] if form.get("type") == "array" else text})
