"""What an owner lets a model see of long-term memory, and when: `own_memory`."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.chat import Chat, assert_done, echoed
from tests.conformance.server import Server
from tests.conformance.steps import Call
from tests.memory.agents import Agent, of_owner

RETRIEVE = "RetrieveMemoryRecords"
COUNT = Call("word_count", {"text": "a b"})
PYTHON = '''\
"""Of an owner."""

import os

from .harness.memory import MemoryPolicy

EVERY = bool(os.environ.get("EVERY"))


def block(text):
    return f'<memory>\\n<entry source="own">{text}</entry>\\n</memory>'


class OwnMemory(MemoryPolicy):
    max_entries = 1
    searches_each_call = True

    def is_shown(self, context):
        assert context.messages
        if "no trigger" in context.prompt:
            raise RuntimeError(context.prompt)
        return EVERY or "quietly" not in context.prompt

    def query(self, context):
        if EVERY:
            return "tea"
        if "no form" in context.prompt:
            return "no form"
        if "no query" in context.prompt:
            raise RuntimeError(context.prompt)
        return "green tea" if context.said == "I look for tea. " else "black coffee"

    def format_memories(self, hits):
        if "no form" in hits[0].text:
            raise RuntimeError(hits[0].text)
        return block(f"{len(hits)} known: {hits[0].text}")

    def notice(self, context):
        if "no notice" in context.prompt:
            raise RuntimeError(context.prompt)
        if "nothing" in context.prompt:
            return None
        return block(f"call {context.number} of {context.who.actor}")
'''
TYPESCRIPT = """\
// Of an owner.

import { type Hit, type InjectionContext, MemoryPolicy } from './harness/memory/index.ts'

function block(text: string) {
  return `<memory>\\n<entry source="own">${text}</entry>\\n</memory>`
}

export class OwnMemory extends MemoryPolicy {
  override readonly searchesEachCall = true
  override readonly maxEntries = 1

  override isShown({ messages, prompt }: InjectionContext) {
    if (process.env.EVERY) return true
    if (prompt.includes('no trigger') || messages.length === 0) throw new TypeError(prompt)
    return !prompt.includes('quietly')
  }

  override query({ prompt, said }: InjectionContext) {
    if (process.env.EVERY) return 'tea'
    if (prompt.includes('no form')) return 'no form'
    if (prompt.includes('no query')) throw new TypeError(prompt)
    return said === 'I look for tea. ' ? 'green tea' : 'black coffee'
  }

  override formatMemories(hits: readonly Hit[]) {
    if (hits[0]!.text.includes('no form')) throw new TypeError(hits[0]!.text)
    return block(`${hits.length} known: ${hits[0]!.text}`)
  }

  override notice({ number, prompt, who }: InjectionContext) {
    if (prompt.includes('no notice')) throw new TypeError(prompt)
    if (prompt.includes('nothing')) return undefined as unknown as string
    return block(`call ${number} of ${who.actor}`)
  }
}
"""


@pytest.fixture
def server(resting: Agent, tmp_path: Path, who: str) -> Iterator[Server]:
    resting.learn_nothing()
    for text in ("green tea", "black coffee", "hot black coffee", "no form"):
        resting.service.remember(resting.notes, f"/users/{who}/facts", text)
    sources = {"own_memory.py": PYTHON, "own_memory.ts": TYPESCRIPT}
    server = of_owner(resting, tmp_path, sources)
    yield server
    server.stop()


def shown(chat: Chat, text: str) -> list[list[str]]:
    """What each model call for a prompt was shown."""
    provider = chat.provider
    return [[it for _, it in provider.remembered(call)] for call in chat.calls(text)]  # type: ignore[attr-defined]


@pytest.mark.usual(
    *("strands-python-alone", "vercel-python-alone"),
    *("strands-typescript-alone", "vercel-typescript-alone"),
)
def test_each_model_call_gets_the_declared_memories(
    resting: Agent, server: Server, who: str
) -> None:
    chat = Chat(server, resting.provider, actor=who)
    reply = chat.say("What do I drink?", ["I look for tea. ", COUNT], ["Tea."])
    assert_done(reply, ["I look for tea. ", "Tea."], turn=1, session=chat.session)
    first = ["1 known: black coffee", f"call 1 of {who}"]
    assert shown(chat, "What do I drink?") == [first, ["1 known: green tea", f"call 2 of {who}"]]
    chat.say("Say it quietly.")
    assert shown(chat, "Say it quietly.") == [[f"call 1 of {who}"]]
    chat.say("Tell me nothing.")
    assert shown(chat, "Tell me nothing.") == [["1 known: black coffee"]]
    said = [("user", "What do I drink?"), ("assistant", "I look for tea. ")]
    calls = [("call", "word_count", {"text": "a b"}), ("result", "2"), ("assistant", "Tea.")]
    assert chat.recalled() == [*said, *calls, *echoed("Say it quietly.", "Tell me nothing.")], (
        "nothing of it stays"
    )

    # What fails in the file costs no turn, and nothing else that is shown.
    for what in ("trigger", "query", "form", "notice"):
        chat, text = Chat(server, resting.provider, actor=who), f"There is no {what}."
        assert chat.say(text).turn == 1
        wanted = ["1 known: black coffee"] if what == "notice" else [f"call 1 of {who}"]
        assert shown(chat, text) == [wanted]
    failed = [line for line in server.log.splitlines() if "own_memory failed: " in line]
    starts = ["WARNING no memories are shown"] * 3 + ["WARNING no notice is shown"]
    for line, start in zip(failed, starts, strict=True):
        assert start in line
        reason = line.partition("own_memory failed: ")[2]
        pattern = r"(Runtime|Type)Error at src/[\w/.]+:\d+( < src/[\w/.]+:\d+)*"
        assert re.fullmatch(pattern, reason), "and not with the words of a prompt"


@pytest.mark.usual("vercel-python-alone", "strands-typescript-alone")
def test_every_model_call_has_a_search_of_its_own(resting: Agent, tmp_path: Path, who: str) -> None:
    sources = {"own_memory.py": PYTHON, "own_memory.ts": TYPESCRIPT}
    server = of_owner(resting, tmp_path, sources, EVERY=1)
    try:
        resting.service.calls.clear()
        Chat(server, resting.provider, actor=who).say("Drink.", [COUNT], ["Tea."])
        asked = [it.given["searchCriteria"] for it in resting.service.calls.of(RETRIEVE)]
        assert [it["searchQuery"] for it in asked] == ["tea"] * 6, "of three namespaces, twice"
    finally:
        server.stop()
