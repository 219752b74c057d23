"""What an owner lets a model see of long-term memory, and when: `memory/injection`."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.chat import Chat, assert_done, echoed
from tests.conformance.server import Server
from tests.conformance.steps import Call
from tests.memory.agents import Agent, of_owner

pytestmark = pytest.mark.usual(
    *("strands-python-alone", "vercel-python-alone"),
    *("strands-typescript-alone", "vercel-typescript-alone"),
)
COUNT = Call("word_count", {"text": "a b"})
PYTHON = '''\
"""Of an owner."""

MAX_ENTRIES = 1


def TRIGGER(context):
    assert context.messages
    if "no trigger" in context.prompt:
        raise RuntimeError(context.prompt)
    return "quietly" not in context.prompt


def query(context):
    if "no query" in context.prompt:
        raise RuntimeError(context.prompt)
    return "green tea" if context.said == "I look for tea. " else "black coffee"


def block(text):
    return f'<memory>\\n<entry source="own">{text}</entry>\\n</memory>'


def format_memories(hits):
    return block(f"{len(hits)} known: {hits[0].text}")


def notice(context):
    return block(f"call {context.number} of {context.who.actor}")
'''
TYPESCRIPT = """\
// Of an owner.

import type { Hit, InjectionContext } from './recall.ts'

export const MAX_ENTRIES: number | null = 1

export function TRIGGER({ messages, prompt }: InjectionContext) {
  if (prompt.includes('no trigger') || messages.length === 0) throw new TypeError(prompt)
  return !prompt.includes('quietly')
}

export function query({ prompt, said }: InjectionContext) {
  if (prompt.includes('no query')) throw new TypeError(prompt)
  return said === 'I look for tea. ' ? 'green tea' : 'black coffee'
}

function block(text: string) {
  return `<memory>\\n<entry source="own">${text}</entry>\\n</memory>`
}

export function formatMemories(hits: readonly Hit[]) {
  return block(`${hits.length} known: ${hits[0]!.text}`)
}

export function notice({ number, who }: InjectionContext) {
  return block(`call ${number} of ${who.actor}`)
}
"""


@pytest.fixture
def server(resting: Agent, tmp_path: Path, who: str) -> Iterator[Server]:
    resting.learn_nothing()
    for text in ("green tea", "black coffee", "hot black coffee"):
        resting.service.remember(resting.notes, f"/users/{who}/facts", text)
    sources = {"injection.py": PYTHON, "injection.ts": TYPESCRIPT}
    server = of_owner(resting, tmp_path, sources)
    yield server
    server.stop()


def shown(chat: Chat, text: str) -> list[list[str]]:
    """What each model call for a prompt was shown."""
    provider = chat.provider
    return [[it for _, it in provider.remembered(call)] for call in chat.calls(text)]  # type: ignore[attr-defined]


def test_each_model_call_is_shown_what_the_owner_declares(
    resting: Agent, server: Server, who: str
) -> None:
    chat = Chat(server, resting.provider, actor=who)
    reply = chat.say("What do I drink?", ["I look for tea. ", COUNT], ["Tea."])
    assert_done(reply, ["I look for tea. ", "Tea."], turn=1, session=chat.session)
    first = ["1 known: black coffee", f"call 1 of {who}"]
    assert shown(chat, "What do I drink?") == [first, ["1 known: green tea", f"call 2 of {who}"]]
    chat.say("Say it quietly.")
    assert shown(chat, "Say it quietly.") == [[f"call 1 of {who}"]]
    said = [("user", "What do I drink?"), ("assistant", "I look for tea. ")]
    calls = [("call", "word_count", {"text": "a b"}), ("result", "2"), ("assistant", "Tea.")]
    assert chat.recalled() == [*said, *calls, *echoed("Say it quietly.")], "nothing of it stays"

    # What fails in the file costs no turn, and shows nothing.
    for what in ("trigger", "query"):
        chat, text = Chat(server, resting.provider, actor=who), f"There is no {what}."
        assert chat.say(text).turn == 1
        assert shown(chat, text) == [[]]
    failed = [line for line in server.log.splitlines() if "memory/injection" in line]
    assert len(failed) == 2
    for line in failed:
        assert "WARNING nothing is shown to the model: memory/injection failed: " in line
        assert line.endswith(("RuntimeError", "TypeError")), "and not with the words of a prompt"
