"""What an owner calls the tool that searches: `own_memory`."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.conformance.chat import Chat
from tests.conformance.steps import Call
from tests.memory.agents import Agent, of_owner

PYTHON = """\
from .harness.memory import MemoryPolicy


class OwnMemory(MemoryPolicy):
    search_tool, search_description = {!r}, {!r}
"""
TYPESCRIPT = """\
import { MemoryPolicy } from './harness/memory/index.ts'

export class OwnMemory extends MemoryPolicy {
  override readonly searchTool = %s
  override readonly searchDescription = %s
}
"""

pytestmark = pytest.mark.usual("vercel-python-alone", "strands-typescript-alone")


class Begin(Protocol):
    def __call__(self, name: str | None, description: str | None) -> Chat: ...


@pytest.fixture
def begin(resting: Agent, tmp_path: Path, who: str) -> Iterator[Begin]:
    """Start an agent whose owner has chosen this name and description."""
    with ExitStack() as stack:

        def make(name: str | None, description: str | None) -> Chat:
            folder = tmp_path / str(name)
            folder.mkdir()
            python = PYTHON.format(name, description)
            values = (json.dumps(name), json.dumps(description))
            typescript = TYPESCRIPT % values
            sources = {"own_memory.py": python, "own_memory.ts": typescript}
            server = of_owner(resting, folder, sources)
            stack.callback(server.stop)
            return Chat(server, resting.provider, actor=who)

        yield make


def tools_of(chat: Chat, text: str) -> dict[str, str]:
    """The names of the tools in the request for a prompt, with their descriptions."""
    tools: list[dict[str, Any]] = chat.calls(text)[-1].request["tools"]
    return {tool["function"]["name"]: tool["function"]["description"] for tool in tools}


def test_the_tool_that_searches_has_the_name_and_the_description_of_the_owner(
    resting: Agent, begin: Begin, who: str
) -> None:
    resting.service.remember(resting.notes, f"/users/{who}/facts", "I like green tea.")
    chat = begin("recall", "Look up what you remember of the user.")
    given = [Call("recall", {"query": "tea"})]
    assert chat.say("What do I like?", given, ["Tea."]).status == 200
    tools = tools_of(chat, "What do I like?")
    assert "search_memory" not in tools
    assert tools["recall"].startswith("Look up what you remember of the user.\n")
    assert "notes" in tools["recall"], "the stores stand behind it"
    history = chat.history(chat.calls("What do I like?")[-1])
    (result,) = [entry[1] for entry in history if entry[0] == "result"]
    assert "I like green tea." in str(result)


@pytest.mark.full
def test_a_model_without_that_tool_is_shown_memories(
    resting: Agent, begin: Begin, who: str
) -> None:
    resting.service.remember(resting.notes, f"/users/{who}/facts", "I like green tea.")
    chat = begin(None, None)
    assert chat.say("What tea do I like?").status == 200
    assert {"search_memory", "recall"}.isdisjoint(tools_of(chat, "What tea do I like?"))
    assert "add_memory" in tools_of(chat, "What tea do I like?")
    assert "I like green tea." in resting.shown(chat, "What tea do I like?")
