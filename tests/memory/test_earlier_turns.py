"""The section `state` of an agent's file: what a model sees of earlier turns."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.conformance.chat import Chat, echoed
from tests.conformance.client import JSON
from tests.conformance.steps import Call
from tests.conformance.targets import Target
from tests.memory.agents import AGENT, NOTES, Agent, Home, collection, of_owner

Begin = Callable[[str], Chat]
TOOL = [Call("word_count", {"text": "one two"})]

pytestmark = pytest.mark.usual("vercel-python-alone", "strands-typescript-alone")


@pytest.fixture
def begin(resting: Agent, target: Target, tmp_path: Path, who: str) -> Iterator[Begin]:
    """Start an agent with this section, and a session of it in which a turn has used a tool."""
    with ExitStack() as stack:

        def make(state: str) -> Chat:
            folder = tmp_path / str(len(list(tmp_path.iterdir())))
            folder.mkdir()
            home = Home(target, folder)
            home.sessions.unlink(missing_ok=True)
            home.declare(collection("notes", "user", NOTES))
            file = home.folder / "agents" / f"{AGENT}.agent.md"
            file.write_text(file.read_text().replace("\n---\n#", f"\nstate: {{{state}}}\n---\n#"))
            server = of_owner(resting, folder, {}, home)
            stack.callback(server.stop)
            chat = Chat(server, resting.provider, actor=who)
            assert chat.say("First.", TOOL, ["Two words."], headers=JSON).turn == 1
            return chat

        yield make


def seen(chat: Chat, text: str) -> list[tuple[object, ...]]:
    """What the model saw of earlier turns in the first call of a turn."""
    assert chat.say(text, headers=JSON).status == 200
    *earlier, prompt = chat.history(chat.calls(text)[-1])
    assert prompt[:2] == ("user", text)
    return [entry[:2] for entry in earlier]


@pytest.mark.full
def test_a_history_that_is_ephemeral_is_not_shown(begin: Begin) -> None:
    chat = begin('session_history: "ephemeral"')
    assert seen(chat, "Second.") == []
    assert seen(chat, "Third.") == []
    # The session has the turns all the same: one of them can be repeated, or taken back.
    assert chat.post({"replace_turn": 2}, JSON).turn == 2
    assert seen(chat, "Fourth.") == []


@pytest.mark.full
def test_a_model_sees_no_tools_of_earlier_turns_and_as_many_tokens_as_it_may(begin: Begin) -> None:
    first = [("user", "First."), ("assistant", "Two words.")]
    for hidden in ('working_state: "ephemeral"', "scratchpad_visible_to_model: false"):
        chat = begin(f"{hidden}, max_state_tokens: 200")
        assert seen(chat, "Second.") == first
        assert seen(chat, "Third.") == [*first, *echoed("Second.")]
        # Tools of this turn are always shown, and so is its prompt.
        long = "Long. " * 200
        assert chat.say(long, TOOL, ["Two."], headers=JSON).turn == 4
        kinds = [entry[0] for entry in chat.history(chat.calls(long)[-1])]
        assert kinds[-3:] == ["user", "call", "result"]
        assert seen(chat, "Last.") == [], "the newest earlier turn alone is too long"

    chat = begin('session_history: "session", max_state_tokens: 1_000_000'.replace("_0", "0"))
    assert {entry[0] for entry in seen(chat, "Second.")} >= {"call", "result"}
