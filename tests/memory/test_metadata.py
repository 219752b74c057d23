"""Stores by name, and metadata: what an owner's code records and finds with them."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.chat import CANARY, Chat
from tests.conformance.client import JSON
from tests.conformance.server import Server
from tests.conformance.steps import Call
from tests.conformance.targets import Target
from tests.memory.agents import PROJECT, Agent, Home, collection, of_owner
from tests.stores.servers import wait_for

PYTHON = '''\
"""Of an owner."""

from .harness.memory import MemoryPolicy


class OwnMemory(MemoryPolicy):
    def metadata_of(self, who, utterance):
        if "boom" in utterance.text:
            raise RuntimeError(utterance.text)
        if "bad" in utterance.text:
            return {"_id": "1"}
        return {"topic": "travel"} if "train" in utterance.text else {}
'''
TYPESCRIPT = """\
// Of an owner.

import { MemoryPolicy, type Utterance, type Who } from './harness/memory/index.ts'

export class OwnMemory extends MemoryPolicy {
  override metadataOf(_who: Who, [, text]: Utterance): Record<string, string> {
    if (text.includes('boom')) throw new TypeError(text)
    if (text.includes('bad')) return { _id: '1' }
    return text.includes('train') ? { topic: 'travel' } : {}
  }
"""
PYTHON_STORES = """\

    def own_stores(self, who):
        from strands.memory import MemoryEntry, MemoryStore

        class Manual(MemoryStore):
            name, description, writable = "manual", "A manual", False
            max_search_results, extraction = None, None

            async def search(self, query, options=None):
                most = options["max_search_results"]
                pages = [f"page {n} of {most} for {query}" for n in range(9)]
                return [MemoryEntry(content=page) for page in pages[:most]]

        return [Manual()]
"""
TYPESCRIPT_STORES = """\

  override ownStores() {
    const search = async (query: string, { maxSearchResults: most = 0 } = {}) =>
      Array.from({ length: most }, (_, n) => ({ content: `page ${n} of ${most} for ${query}` }))
    return [{ name: 'manual', description: 'A manual', writable: false, search }]
  }
"""
PYTHON_AGENT = '''\
"""Of an owner."""

import json

{0}

from .harness import memory

SYSTEM_PROMPT = "Be brief."


@{1}
async def word_count(text: str) -> str:
    """Do what the text says."""
    given = json.loads(text)
    try:
        if "add" in given:
            memory.add(given.pop("add"), **given)
            return "added"
        if "most" in given:
            given["max_search_results"] = given.pop("most")
        found = await memory.search(given.pop("search"), **given)
        return json.dumps([[hit.collection, hit.text] for hit in found])
    except ValueError as error:
        return str(error)


TOOLS = [word_count]
'''
TYPESCRIPT_AGENT = """\
// Of an owner.

import {{ tool }} from '{0}'
import {{ z }} from 'zod'

import {{ add, search }} from './harness/memory/index.ts'

export const SYSTEM_PROMPT = 'Be brief.'

async function run({{ text }}: {{ text: string }}) {{
  const {{ add: added, search: query, most: maxSearchResults, ...given }} = JSON.parse(text)
  try {{
    if (!added) {{
      const found = await search(query, {{ ...given, maxSearchResults }})
      return JSON.stringify(found.map((hit) => [hit.collection, hit.text]))
    }}
    add(added, given)
    return 'added'
  }} catch (error) {{
    if (error instanceof RangeError) return error.message
    throw error
  }}
}}

const wordCount = tool({{
  {1}: run,
  description: 'Do what the text says.',
  inputSchema: z.object({{ text: z.string() }}),
}})

export const TOOLS = {2}
"""
AGENTS = {
    "strands-python": PYTHON_AGENT.format("from strands import tool", "tool"),
    "vercel-python": PYTHON_AGENT.format("import ai", "ai.tool"),
    "strands-typescript": TYPESCRIPT_AGENT.format(
        "@strands-agents/sdk", "name: 'word_count', callback", "[wordCount]"
    ),
    "vercel-typescript": TYPESCRIPT_AGENT.format("ai", "execute", "{ word_count: wordCount }"),
}
TRAVEL = {"topic": {"stringValue": "travel"}}


@pytest.fixture
def server(resting: Agent, tmp_path: Path) -> Iterator[Server]:
    """A server of an owner, whose memory of notes indexes a key."""
    given = {"memoryId": resting.notes, "addIndexedKeys": [{"key": "topic", "type": "STRING"}]}
    resting.service.service.call("UpdateMemory", given)
    is_strands = resting.target.name.startswith("strands")
    python, typescript = PYTHON, TYPESCRIPT
    if is_strands:
        python, typescript = PYTHON + PYTHON_STORES, TYPESCRIPT + TYPESCRIPT_STORES
    sources = {"own_memory.py": python, "own_memory.ts": f"{typescript}}}\n"}
    name = "agent.py" if "python" in resting.target.name else "agent.ts"
    server = of_owner(resting, tmp_path, {**sources, name: AGENTS[resting.target.name]})
    yield server
    server.stop()


def recorded(agent: Agent, server: Server, memory: str, who: str) -> list[tuple[str, Any]]:
    """The texts of users that a memory was told, each with the metadata of its event."""
    wait_for("the recording", lambda: server.get("/ping").json["status"] == "Healthy")
    events = [(it.given["payload"], it.given.get("metadata")) for it in agent.events(memory, who)]
    said = [(it["conversational"], metadata) for payload, metadata in events for it in payload]
    users = [(it["content"]["text"], more) for it, more in said if it["role"] == "USER"]
    return [(re.sub(rf" {CANARY}\d+$", "", text), more) for text, more in users]


def use(chat: Chat, **given: object) -> Any:
    """What the owner's tool answers to the model."""
    text = f"Use it: {json.dumps(given)}"
    reply = chat.say(text, [Call("word_count", {"text": json.dumps(given)})], ["Done."])
    assert reply.status == 200
    (answer,) = [it[1] for it in chat.history(chat.calls(text)[-1]) if it[0] == "result"]
    return json.loads(answer) if str(answer).startswith("[") else answer


@pytest.mark.full
@pytest.mark.usual(
    *("strands-python-alone", "vercel-python-alone"),
    *("strands-typescript-alone", "vercel-typescript-alone"),
)
def test_texts_are_recorded_and_found_by_their_metadata_and_store(
    resting: Agent, server: Server, who: str
) -> None:
    notes, team, service = resting.notes, resting.team, resting.service

    def chat() -> Chat:
        return Chat(server, resting.provider, actor=who)

    # The owner's file gives metadata to texts: what it does wrong loses no text.
    for text in ("I go by train to tea.", "It is a bad tea.", "Tea made boom."):
        assert chat().say(text, ["Fine."], headers=JSON).turn == 1
    told = [("I go by train to tea.", TRAVEL), ("It is a bad tea.", None), ("Tea made boom.", None)]
    for memory in (notes, team):
        assert recorded(resting, server, memory, who) == told
    assert len(resting.events(notes, who)) == 4, "two texts of the first turn differ in metadata"
    lines = [it for it in server.log.splitlines() if "own_memory: " in it]
    assert len(lines) == 2
    assert "key _id must be 1 to 128 of A-Z" in lines[0]
    assert lines[1].endswith(("RuntimeError", "TypeError"))

    # A search finds in the stores that are named, so many of each, and by metadata.
    service.calls.clear()
    service.remember(team, f"/projects/{PROJECT}/facts", "tea", "green tea")
    by_topic = use(chat(), search="tea", stores=["notes"], metadata={"topic": "travel"})
    assert [store for store, _ in by_topic] == ["notes"]
    assert by_topic[0][1].startswith("I go by train")
    search = service.calls.of("RetrieveMemoryRecords")[-1].given
    (wanted,) = search["searchCriteria"]["metadataFilters"]
    right = {"metadataValue": {"stringValue": "travel"}}
    assert wanted == {"left": {"metadataKey": "topic"}, "operator": "EQUALS_TO", "right": right}
    own = ["manual"] if resting.target.name.startswith("strands") else []
    all_stores = sorted(["notes", "team", *own])
    assert sorted(store for store, _ in use(chat(), search="tea", most=1)) == all_stores
    assert len(use(chat(), search="tea")) > len(all_stores)
    if own:
        wrong = "Store manual does not exist; available stores: notes, team."
        assert use(chat(), search="a", stores=own, metadata={"topic": "a"}) == wrong
        pages = [["manual", f"page {n} of 2 for tea"] for n in (0, 1)]
        assert use(chat(), search="tea", stores=own, most=2) == pages
    names = ", ".join(["notes", "team", *own])
    unknown = "Store x does not exist; available stores: "
    assert use(chat(), search="a", stores=["x"]) == f"{unknown}{names}."
    assert use(chat(), search="a", metadata={"a": "é"}).startswith("Metadata: the value of a must")
    empty = "Metadata: the value of topic is empty; a search needs a value."
    assert use(chat(), search="tea", metadata={"topic": ""}) == empty
    assert "must be at least 1." in use(chat(), search="a", most=0)

    # A store that fails is named, and the others answer.
    service.faults.fail(
        "RetrieveMemoryRecords", times=None, where=lambda it: it["memoryId"] == team
    )
    assert {store for store, _ in use(chat(), search="tea")} == {"notes", *own}
    assert " of team: " in server.log
    service.faults.clear()

    # What a tool adds goes to the stores that are named, when the turn commits.
    service.calls.clear()
    assert use(chat(), add="I like green tea.", stores=["notes"], metadata={"a": "b"}) == "added"
    added = ("I like green tea.", {"a": {"stringValue": "b"}})
    assert added in recorded(resting, server, notes, who)
    assert added not in recorded(resting, server, team, who)
    assert use(chat(), add="a", stores=["x"]) == f"{unknown}notes, team."
    assert use(chat(), add="a", metadata={"_id": "1"}).startswith("Metadata: key _id must be")


@pytest.mark.full
def test_a_file_declares_the_metadata_of_a_namespace(
    resting: Agent, target: Target, tmp_path: Path, who: str
) -> None:
    home = Home(target, tmp_path)
    home.sessions.unlink(missing_ok=True)
    text = collection("notes", "user", {"/users/{actorId}/facts": (3, 0.1)})
    home.declare(text.replace("score: 0.1\n", "score: 0.1\n      metadata: {topic: travel}\n"))
    made = resting.service.add_memory("plain", "semantic:/users/{actorId}/facts")
    unindexed = {**resting.variables, "SECRETS_AGENTCORE_NOTES": made}
    result = home.run("check", "--connect", "--json", **unindexed)
    messages = {it["id"]: it["message"] for it in json.loads(result.stdout)["diagnostics"]}
    assert messages["AML-W249"].startswith("The memory does not index topic: ")

    resting.service.remember(resting.notes, f"/users/{who}/facts", "tea")
    sources = {"agent.py": AGENTS[resting.target.name], "agent.ts": AGENTS[resting.target.name]}
    server = of_owner(resting, tmp_path, sources, home)
    try:
        chat = Chat(server, resting.provider, actor=who)
        chat.say("tea")
        assert resting.shown(chat, "tea") == [], "it has no such metadata"
        (asked,) = resting.service.calls.of("RetrieveMemoryRecords")
        (wanted,) = asked.given["searchCriteria"]["metadataFilters"]
        assert wanted["right"] == {"metadataValue": {"stringValue": "travel"}}
        # A search narrows what the file allows, and never widens it. The turn itself recalls, too.
        five = dict.fromkeys("abcde", "x")
        for metadata, counts in (({"topic": "work"}, {1}), ({"a": "b"}, {1, 2}), (five, {1})):
            resting.service.calls.clear()
            chat = Chat(server, resting.provider, actor=who)
            assert use(chat, search="tea", metadata=metadata) == []
            calls = resting.service.calls.of("RetrieveMemoryRecords")
            searches = [call.given["searchCriteria"]["metadataFilters"] for call in calls]
            assert {len(filters) for filters in searches} == counts
        assert "with the metadata of its file, the search has over 5 keys" in server.log
    finally:
        server.stop()
