"""Agents whose long-term memory is a knowledge base, alone or beside one in AgentCore."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.bedrock.knowledge_bases import source_of
from tests.bedrock.server import Bedrock
from tests.conformance.chat import Chat
from tests.conformance.server import Server
from tests.conformance.targets import Target
from tests.memory.agents import PROJECT, Home, ping
from tests.memory.provider import MemoryProvider
from tests.stores.agents import command
from tests.stores.forks import start
from tests.stores.servers import wait_for

FACTS = "/users/{actorId}/facts"
SETTINGS: dict[str, int | str] = {
    "RECALL_TIMEOUT_SECONDS": 20,
    "PROJECT_ID": PROJECT,
    "ADD_MEMORY_TOOL": 1,
    "TURN_TIMEOUT_SECONDS": 60,
}


def declared(id: str, lifetime: str = "user", more: str = "", template: str = FACTS) -> str:
    """A collection file; the ids of its knowledge base are in SECRETS_<ID> and its _SOURCE."""
    return f"""---
spec_version: "1.2"
collection_id: "{id}"
version: "1.0.0"
status: "active"
meta:
  name: "{id.title()}"
  description: "Facts of what people said. They last beyond sessions."
  owner: "tests"
  last_updated: "2026-01-01"
scope:
  lifetime: "{lifetime}"
backend:
  type: "knowledge_base"
  knowledge_base_id_secret: "secrets/{id}"
  data_source_id_secret: "secrets/{id}-source"
  region: "us-east-1"
  retrieval_config:
    "{template}": {{top_k: 3, relevance_score: 0.2}}
{more}writeback:
  enabled: true
---
"""


def variables(bedrock: Bedrock, **bases: str) -> dict[str, str]:
    """What reaches the service, and the knowledge base of each collection."""
    found = bedrock.environment()
    for id, base in bases.items():
        name = f"SECRETS_{id.upper()}"
        found |= {name: base, f"{name}_SOURCE": source_of(base)}
    return found


def with_knowledge_base(target: Target, **more: str) -> Target:
    answers = {"long_term_memory": "knowledge-base", **more}
    return replace(
        target,
        answers=tuple(answers.items()),
        command=lambda project: command(project, "serve"),
        start=start,
        store=answers.get("session_store", ""),
    )


class Agent:
    """A target with one knowledge base on a service of its own."""

    def __init__(self, target: Target, folder: Path, provider: MemoryProvider) -> None:
        self.target, self.provider, self.bedrock = target, provider, Bedrock()
        self.bedrock.start()
        self.base = self.bedrock.add_base()
        self.home = Home(target, folder)
        self.home.declare(declared("notes"))
        self._servers: list[Server] = []
        self._shared: Server | None = None

    @property
    def variables(self) -> dict[str, str]:
        return variables(self.bedrock, notes=self.base)

    @property
    def server(self) -> Server:
        """The server that scenarios share."""
        if self._shared is None:
            self._shared = self.fresh()
            assert Chat(self._shared, self.provider, actor="nobody").say("Wake up?").turn == 1
            self.idle()
        return self._shared

    def fresh(self, **settings: int | str) -> Server:
        """A server of its own, for a scenario that ends it."""
        given = {**SETTINGS, **self.variables, **settings}
        server = Server(self.target, self.home.folder, self.provider.origin, given)
        self._servers.append(server)
        return server

    def run(self, *words: str, **more: str) -> Any:
        """Run a command where the servers run, with their variables."""
        return self.home.run(*words, PROJECT_ID=PROJECT, **{**self.variables, **more})

    def chat(self, actor: str, server: Server | None = None) -> Chat:
        return Chat(server or self.server, self.provider, actor=actor)

    def idle(self, server: Server | None = None) -> None:
        """Wait until everything is recorded."""
        asked = server or self._shared
        assert asked
        wait_for("a Healthy", lambda: ping(asked) == "Healthy")

    def kept(self, actor: str) -> list[str]:
        """The facts of an actor."""
        return self.bedrock.service.texts(self.base, f"/users/{actor}/facts/")

    def stop(self) -> None:
        for server in self._servers:
            server.signal()
        for server in self._servers:
            server.stop()
        self.bedrock.stop()


def sentences(transcript: str) -> Sequence[str]:
    """What the scripted model finds in a transcript: what the user said that begins with "my"."""
    found = []
    for line in transcript.splitlines():
        who, _, text = line.partition(": ")
        if who == "User" and '"my ' in text.lower() and "?" not in text:
            found.append(f"- {json.loads(text).partition(' canary')[0]}\n")
    return found or ["NONE"]


def shown(provider: MemoryProvider, chat: Chat, text: str) -> list[str]:
    """What the first call for a prompt showed to the model."""
    return [entry for _, entry in provider.remembered(chat.calls(text)[0])]
