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
    """Plays a step of `script` for each call, then "ok", and notes in `calls` what it was told.

    A step lists texts to say, exceptions to raise, events to wait for (None: for ever) and
    {tool: arguments} to call; ("length",), ("filter",) or ("cut",) is how it stops, if not well.
    """

    def __init__(self, script: Any) -> None:
        self.script, self.calls = list(script), list[str]()

    async def stream(self, messages: Any, *_: Any, **__: Any) -> Any:
        told = [block for message in messages for block in message["content"]]
        self.calls.append(" ".join(block.get("text", f"({next(iter(block))})") for block in told))
        yield {"messageStart": {"role": "assistant"}}
        stop, use = "end_turn", {}
        for item in self.script.pop(0) if self.script else ["ok"]:
            if isinstance(item, Exception):
                raise item
            if item is None or isinstance(item, asyncio.Event):
                await asyncio.wait_for((item or asyncio.Event()).wait(), 5)
            elif isinstance(item, tuple):
                stop = STOPS.get(item[0], "")
            else:
                delta = {"text": item}
                if isinstance(item, dict):
                    [(name, arguments)], stop = item.items(), "tool_use"
                    use = {"toolUse": {"name": name, "toolUseId": "1"}}
                    delta = {"toolUse": {"input": json.dumps(arguments)}}
                yield {"contentBlockStart": {"start": use}}
                yield {"contentBlockDelta": {"delta": delta}}
                yield {"contentBlockStop": {}}
        if stop:
            yield {"messageStop": {"stopReason": stop}}
