"""A model that plays a script, for the tests of every framework in the same words."""

import asyncio
import os
from collections.abc import AsyncGenerator
from typing import Any, Literal
from unittest.mock import patch

import ai
import pytest
from ai import events

from app.offline_model import Offline, OfflineModel

STOPS = {"call": "tool_call", "length": "length", "filter": "content_filter", "cut": ""}
NAMES = {"tool_call": "(toolUse)", "tool_result": "(toolResult)"}
anyio_backend = pytest.fixture(lambda: "asyncio")  # what runs the tests that are async

# Tests ignore the developer's environment and .env.
patch("app.settings.read_env_file", list).start()
own = ("AGENT_ID", "MODEL", "SECRET", "SESSION")
os.environ.update({name: "" for name in os.environ if name.startswith(own)})


class Scripted(Offline):
    provider_class_id: Literal["scripted"] = "scripted"  # type: ignore[assignment]

    async def stream(self, model: Any, messages: Any, **_: Any) -> AsyncGenerator[events.Event]:
        told = [part for message in messages[1:] for part in message.parts]
        model.calls.append(" ".join(NAMES.get(part.kind) or part.text for part in told))
        step, stop = model.script.pop(0) if model.script else ["ok"], "stop"
        yield events.StreamStart()
        for item in step:
            if isinstance(item, Exception):
                raise item
            if isinstance(item, tuple):
                stop = STOPS[item[0]]
            elif isinstance(item, str):
                yield events.TextStart()
                yield events.TextDelta(chunk=item)
                yield events.TextEnd()
            else:
                await asyncio.sleep(item)
        if stop == "tool_call":
            yield events.ToolStart(tool_call_id="1", tool_name="word_count")
            yield events.ToolDelta(tool_call_id="1", chunk='{"text": "a b"}')
            yield events.ToolEnd(tool_call_id="1", tool_call=ai.messages.DUMMY_TOOL_CALL)
        if stop:
            yield events.StreamEnd(finish_reason=stop)


# A step lists texts to say, seconds to wait, exceptions to raise, and a stop such as ("call",).
class ScriptedModel(OfflineModel):
    """Plays a step of `script` for each call, then "ok", and notes in `calls` what it was told."""

    script: Any = None
    calls: Any = None

    def __init__(self, script: Any) -> None:
        super().__init__(provider=Scripted())
        self.script, self.calls = list(script), list[str]()
