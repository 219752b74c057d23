"""Somebody who talks to an agent that has a file as its memory."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from conftest import ScriptedModel

from app.contract import Ask
from app.memory.recalling import with_memory
from app.parts import Parts
from app.settings import Settings
from app.turn import take_turn

COLLECTION = """---
spec_version: "1.2"
collection_id: "notes"
version: "1.0.0"
status: "active"
meta: {name: "Notes", description: "What people said. It is theirs alone.", owner: "platform"}
scope: {lifetime: "user"}
backend:
  type: "agentcore_memory"
  memory_id_secret: "secrets/agentcore/notes"
  region: "eu-west-1"
  retrieval_config: {"/users/{actorId}": {top_k: 3, relevance_score: 0.5}}
writeback: {enabled: true}
---
"""
AGENT = """---
agent_id: "helper"
memory: {mode: "user", read_collections: ["notes"], write_collections: ["notes"]}
---
"""


class Talk:
    """Somebody who talks to an agent that has a file as its memory."""

    def __init__(self, *script: Any) -> None:
        self.parts = Parts(Settings())
        self.model = ScriptedModel(script)
        if script:
            self.parts.model = with_memory(self.model)

    async def say(self, actor: str | None, prompt: str, session: str = "s") -> str:
        """The reply, after what the turn is to remember is recorded."""

        async def ignore(_: str) -> None:
            """The reply comes whole, at the end."""

        ask = Ask(f"{session}-{actor}", actor, None, prompt)
        try:
            return str((await take_turn(self.parts, ask, ignore))["reply"])
        finally:
            for _ in range(100):
                await asyncio.sleep(0.01 if self.parts.is_waiting else 0)

    async def stored(self, actor: str) -> str:
        """The session as it was committed."""
        return str(await self.parts.sessions._store.load(f"s-{actor}"))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("SECRETS_AGENTCORE_NOTES", "AGENT_ID", "ADD_MEMORY_TOOL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RECALL_TIMEOUT_SECONDS", "1")
    for path, text in {
        "collections/notes.collection": COLLECTION,
        "agents/helper.agent": AGENT,
    }.items():
        (tmp_path / path).parent.mkdir()
        (tmp_path / f"{path}.md").write_text(text, "utf-8")
    return tmp_path


def rows(project: Path, key: str) -> list[Any]:
    path = project / ".memory" / "notes.jsonl"
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    return [row[key] for row in map(json.loads, lines) if key in row]
