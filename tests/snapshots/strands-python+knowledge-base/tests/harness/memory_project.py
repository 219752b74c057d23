"""A project with one memory, and a client of its agent."""

import asyncio
import json
from pathlib import Path
from typing import Any

from client import Client, Response
from script import Answer

from my_agent.harness.memory.long_term import LongTermMemory
from my_agent.harness.memory.record import Recorder

COLLECTION = """---
spec_version: "1.2"
collection_id: "notes"
version: "1.0.0"
status: "active"
meta: {name: "Notes", description: "What people said. It is theirs.", owner: "platform"}
scope: {lifetime: "user"}
backend:
  type: "knowledge_base"
  knowledge_base_id_secret: "secrets/notes"
  data_source_id_secret: "secrets/notes-source"
  extraction: "none"
  region: "eu-west-1"
  retrieval_config: {"/users/{actorId}": {top_k: 3, relevance_score: 0.5}}
writeback: {enabled: true}
---
"""
AGENT = """---
agent_id: "apart"
memory: {mode: "user", read_collections: ["notes"], write_collections: ["notes"]}
---
"""
GRANTS = """---
agent_id: "apart"
collections: [{ref: "notes", access: "read-write"}]
---
"""


def declare_memory(folder: Path) -> None:
    """Declare a memory; it is a local file until its variable is set."""
    (folder / "collections" / "notes.collection.md").write_text(COLLECTION, "utf-8")
    (folder / "agents" / "apart.agent.md").write_text(AGENT, "utf-8")
    (folder / "iam" / "apart.iam.md").write_text(GRANTS, "utf-8")


def stored(name: str) -> list[Any]:
    """Return the values of a field in the memory's file."""
    path = Path(".memory/notes.jsonl")
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    rows = [json.loads(line) for line in lines]
    return [row[name] for row in rows if name in row]


def recorded_texts(*texts: str) -> list[list[str]]:
    """Return the stored texts of a turn: the user's, then the assistant's, and so on."""
    speakers = ["USER", "ASSISTANT"] * len(texts)
    return [[speaker, text] for speaker, text in zip(speakers, texts, strict=False)]


class MemoryClient(Client):
    """A client of an agent with a memory."""

    def __init__(self, *script: Answer, recall_timeout_seconds: float = 30) -> None:
        settings: Any = {"recall_timeout_seconds": recall_timeout_seconds, "add_memory_tool": 1}
        super().__init__(*script, **settings)
        self.long_term = LongTermMemory.find(self.runtime.capabilities)

    async def talk(self, actor: str, prompt: str, *, session: str = "session") -> Response:
        """Run a turn in a session of the actor, and wait until it is recorded."""
        response = await self.say(prompt, session=f"{session}-of-{actor}", actor=actor)
        await wait_until_recorded(self.long_term.recorder)
        return response


async def wait_until_recorded(recorder: Recorder) -> None:
    """Wait until all turns are recorded."""
    async with asyncio.timeout(30):
        while recorder.is_waiting:  # noqa: ASYNC110 (the recorder has no event)
            await asyncio.sleep(0.01)
