"""An agent remembers people: what a model is shown, what its tools do, and what is kept of it."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from talk import Talk, project, rows

from app.contract import AgentError
from app.memory.local_memory import LocalMemory
from app.parts import Parts
from app.settings import Settings

__all__ = ["project"]  # the fixture
pytestmark = pytest.mark.usefixtures("project")
MISO, QUESTION = "My <cat> is called Miso.", "What is my cat called?"
SHOWN = '<memory>\n<entry source="notes">My &lt;cat&gt; is called Miso.</entry>\n</memory>'


async def test_a_model_is_shown_what_is_remembered_and_the_session_does_not_keep_that() -> None:
    talk = Talk(["hello"], ["Miso"])
    await talk.say("alice", MISO, "before")
    assert await talk.say("alice", QUESTION) == "Miso"
    assert talk.model.calls == [MISO, f"{QUESTION} \n\n{SHOWN}"]
    assert "memory>" not in await talk.stored("alice")


async def test_the_offline_model_says_what_it_remembers_after_all_else() -> None:
    reply = "I am the offline model, not a language model: I repeat what I am told."
    talk = Talk()
    assert await talk.say("alice", MISO, "before") == f'{reply} Now you said: "{MISO}"'
    now = f'{reply} Now you said: "{QUESTION}"'
    asked = [talk.say(actor, QUESTION) for actor in ("alice", "bob")]
    assert await asyncio.gather(*asked) == [f'{now} I remember: "{MISO}"', now]


async def test_tools_search_the_memory_and_add_to_it(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ADD_MEMORY_TOOL", "1")
    talk = Talk()
    reply = await talk.say("alice", "use add_memory: Alice likes tea.")
    assert "The tool answered" in reply
    (items,) = rows(project, "items")
    assert [role for role, _ in items] == ["USER", "ASSISTANT", "USER"]
    assert items[2] == ["USER", "Alice likes tea."]
    reply = await talk.say("alice", "use search_memory: likes tea", "later")
    assert "Alice likes tea." in reply.split("The tool answered")[1].split("I remember")[0]
    assert "Alice likes tea." not in await talk.say("bob", "use search_memory: likes tea")


async def test_without_the_setting_there_is_no_tool_that_adds(project: Path) -> None:
    await Talk().say("alice", "use add_memory: Alice likes tea.")
    assert "Alice likes tea." not in [text for _, text in rows(project, "items")[0]]


async def test_a_failed_turn_adds_nothing(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADD_MEMORY_TOOL", "1")
    talk = Talk()
    talk.parts.settings = Settings(max_steps=1)
    with pytest.raises(AgentError):
        await talk.say("alice", "use add_memory: Alice likes tea.")
    scripted = Talk(["half", ValueError("secret")], ["fine"])
    with pytest.raises(AgentError):
        await scripted.say("alice", MISO)
    assert rows(project, "items") == []
    await scripted.say("alice", "Hello!")
    assert rows(project, "items") == [[["USER", "Hello!"], ["ASSISTANT", "fine"]]]


async def test_a_memory_that_is_late_or_fails_is_left_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    talk, start = Talk(["one"], ["two"]), time.monotonic()
    monkeypatch.setattr(LocalMemory, "retrieve", lambda *_: asyncio.sleep(9))
    assert await talk.say("alice", "private") == "one"
    assert 0.9 < time.monotonic() - start < 2.5

    async def fail(*_: Any) -> None:
        raise ValueError("private")

    monkeypatch.setattr(LocalMemory, "retrieve", fail)
    assert await talk.say("alice", "private") == "two"
    lines = [line for line in caplog.messages if "recalled" in line]
    assert [line.split(": ")[1] for line in lines] == ["no answer within 1 s", "ValueError"]
    assert "private" not in caplog.text


async def test_each_namespace_is_searched_once_in_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    async def retrieve(_: Any, place: Any, query: str, top_k: int) -> list[Any]:
        asked.append((place.path, query, top_k))
        return []

    monkeypatch.setattr(LocalMemory, "retrieve", retrieve)
    await Talk(["counting", ("call",)], ["again", ("call",)], ["done"]).say("alice", "Count!")
    assert asked == [("/users/alice/", "Count!", 12)]


@pytest.mark.parametrize(("actor", "error"), [(None, "actor_required"), ("a/b", "invalid_actor")])
async def test_whoever_is_remembered_says_who_they_are(actor: str | None, error: str) -> None:
    talk = Talk(["hello"])
    assert talk.parts.actor_required
    with pytest.raises(AgentError) as raised:
        await talk.say(actor, "hi")
    assert (raised.value.type, talk.model.calls) == (error, [])


def test_what_is_contacted_and_kept_is_told() -> None:
    parts = Parts(Settings())
    where = ".memory/notes.jsonl, until SECRETS_AGENTCORE_NOTES is set"
    assert parts.contacts()[-1] == f"Long-term memory: in {where}"
    assert parts.kept.endswith(f" What was said goes to {where}.")
