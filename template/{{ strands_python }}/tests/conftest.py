"""A model that plays a script, for the tests of every framework in the same words."""

import asyncio
import json
from typing import Any

import pytest
from app.offline_model import OfflineModel

STOPS = {"length": "max_tokens", "filter": "content_filtered"}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class ScriptedModel(OfflineModel):
    """Plays one step of `script` for each call and notes in `calls` what it was asked.

    A step lists texts to say, exceptions to raise, events to wait for (None: for ever) and
    {tool: arguments} to call; ("length",), ("filter",) or ("cut",) is how it stops, if not well.
    """

    def __init__(self, *script: list[Any]) -> None:
        self.script, self.calls = list(script), list[list[str]]()

    async def stream(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
        self.calls.append(["".join(map(_shown, message["content"])) for message in messages])
        stop = "end_turn"
        yield {"messageStart": {"role": "assistant"}}
        for item in self.script.pop(0) if self.script else ["ok"]:
            if isinstance(item, Exception):
                raise item
            if item is None or isinstance(item, asyncio.Event):
                await (item or asyncio.Event()).wait()
            elif isinstance(item, tuple):
                stop = STOPS.get(item[0], "")
            elif isinstance(item, str):
                yield {"contentBlockDelta": {"delta": {"text": item}}}
                yield {"contentBlockStop": {}}
            else:
                [(name, arguments)], stop = item.items(), "tool_use"
                use, text = {"name": name, "toolUseId": "1"}, json.dumps(arguments)
                yield {"contentBlockStart": {"start": {"toolUse": use}}}
                yield {"contentBlockDelta": {"delta": {"toolUse": {"input": text}}}}
                yield {"contentBlockStop": {}}
        if stop:
            yield {"messageStop": {"stopReason": stop}}


def _shown(block: Any) -> str:
    """A text as it is, a call as (tool), and its result as =success or =error."""
    if "toolUse" in block:
        return f"({block['toolUse']['name']})"
    return str(block["text"]) if "text" in block else f"={block['toolResult']['status']}"
