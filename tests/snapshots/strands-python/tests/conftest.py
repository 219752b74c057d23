"""A model that plays a script, for the tests of every framework in the same words."""

import asyncio
import os
from typing import Any
from unittest.mock import patch

import pytest

from app.offline_model import OfflineModel

STOPS = {"call": "tool_use", "length": "max_tokens", "filter": "content_filtered", "cut": ""}
anyio_backend = pytest.fixture(lambda: "asyncio")  # what runs the tests that are async

# Tests ignore the developer's environment and .env.
patch("app.settings.read_env_file", list).start()
own = ("AGENT_ID", "MODEL", "SECRET", "SESSION")
os.environ.update({name: "" for name in os.environ if name.startswith(own)})


# A step lists texts to say, seconds to wait, exceptions to raise, and a stop such as ("call",);
# a call may have arguments, as the model writes them, an id and a name.
class ScriptedModel(OfflineModel):
    """Plays a step of `script` for each call, then "ok", and notes in `calls` what it was told."""

    def __init__(self, script: Any) -> None:
        self.script, self.calls = list(script), list[str]()

    async def stream(self, messages: Any, *_: Any, **__: Any) -> Any:
        told = [block for message in messages for block in message["content"]]
        self.calls.append(" ".join(block.get("text", f"({next(iter(block))})") for block in told))
        yield {"messageStart": {"role": "assistant"}}
        stop, call = "end_turn", ("", "1", "word_count")
        for item in self.script.pop(0) if self.script else ["ok"]:
            if isinstance(item, Exception):
                raise item
            if isinstance(item, tuple):
                stop, call = STOPS[item[0]], (*item[1:], *call[len(item) - 1 :])
            elif isinstance(item, str):
                yield {"contentBlockDelta": {"delta": {"text": item}}}
                yield {"contentBlockStop": {}}
            else:
                await asyncio.sleep(item)
        if stop == "tool_use":
            tool = {"name": call[2], "toolUseId": call[1]}
            yield {"contentBlockStart": {"start": {"toolUse": tool}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": call[0]}}}}
            yield {"contentBlockStop": {}}
        if stop:
            yield {"messageStop": {"stopReason": stop}}
