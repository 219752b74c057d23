"""Agents with long-term memory: their collections, their servers and their command line."""

import itertools
import json
import math
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.agentcore.calls import Call
from tests.agentcore.server import AgentCore
from tests.conformance.chat import CANARY, Chat
from tests.conformance.server import Server
from tests.conformance.targets import Target
from tests.installed import installed
from tests.memory.provider import MemoryProvider
from tests.stores.agents import ANSWERS, Home, command, with_store
from tests.stores.servers import wait_for
from tests.stores.stores import Backing

RECALL = 2  # seconds that a turn waits for what is remembered
SLACK = 3.0  # for a machine that has other things to do
PROJECT = "apollo"
SETTINGS: dict[str, int | str] = {
    "RECALL_TIMEOUT_SECONDS": RECALL,
    "PROJECT_ID": PROJECT,
    "ADD_MEMORY_TOOL": 1,
    "TURN_TIMEOUT_SECONDS": 6,
    "MAX_PROMPT_CHARS": 300_000,
    "MAX_BODY_BYTES": 2_000_000,
}
_numbers = itertools.count(1)

# What each namespace is asked for: top_k and relevance_score.
NOTES = {"/users/{actorId}/facts": (2, 0.5), "/users/{actorId}/*": (30, 0.2)}
TEAM = {"/projects/{projectId}/facts": (3, 0.4)}


def collection(
    id: str,
    lifetime: str,
    namespaces: Mapping[str, tuple[int, float]] | None,
    batch_size: int = 1,
    secret: str = "",
) -> str:
    """A collection file; the id of its memory is in SECRETS_AGENTCORE_<ID>."""
    lines = ["  retrieval_config:"] if namespaces else []
    for template, (top_k, score) in (namespaces or {}).items():
        lines += [f'    "{template}":', f"      top_k: {top_k}", f"      relevance_score: {score}"]
    config = "".join(f"{line}\n" for line in lines)
    return f"""---
spec_version: "1.2"
collection_id: "{id}"
version: "1.0.0"
status: "active"
meta:
  name: "{id.title()}"
  description: >-
    What people said in completed turns, and what was made of it. It lasts beyond sessions.
  owner: "tests"
  last_updated: "2026-01-01"
scope:
  lifetime: "{lifetime}"
backend:
  type: "agentcore_memory"
  memory_id_secret: "secrets/agentcore/{secret or id}"
  region: "us-east-1"
{config}  batch_size: {batch_size}
writeback:
  enabled: true
---
# Purpose

A memory for tests.
"""


def unique(name: str) -> str:
    """A name that none of the others begins with."""
    return f"{name}-{os.getpid()}-{next(_numbers)}x"


def run(
    target: Target, folder: Path, *words: str, typed: str = "", **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a command of a render in a folder, with these variables and no others."""
    project = installed(target.variant, **dict(ANSWERS))
    return subprocess.run(
        command(project, *words),
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), **variables},
        input=typed,
        capture_output=True,
        text=True,
        timeout=90,
    )


class Files:
    """A folder with collections/, agents/ and iam/ of a render, for long-term memory only."""

    def __init__(self, target: Target, folder: Path, *collections: str) -> None:
        self.target, self.folder = target, folder / unique("files")
        project = installed(target.variant, **dict(ANSWERS))
        for kind in ("collections", "agents", "iam"):
            shutil.copytree(project / kind, self.folder / kind)
        (self.folder / "collections" / "sessions.collection.md").unlink()
        name_collections(self.folder, "my-agent", *collections)

    def run(self, *words: str, typed: str = "", **more: str) -> subprocess.CompletedProcess[str]:
        return run(self.target, self.folder, *words, typed=typed, **more)


def name_collections(folder: Path, agent_id: str, *collections: str, before: str = "") -> None:
    """Write collection files, and name them where an agent's collections stand."""
    found = [re.findall(r'collection_id: "(.*)"', text)[0] for text in collections]
    for id, text in zip(found, collections, strict=True):
        (folder / "collections" / f"{id}.collection.md").write_text(text)
    ids = [*([before] if before else []), *found]
    head = f'---\nspec_version: "1.2"\nagent_id: "{agent_id}"\n'
    names = json.dumps(ids)
    (folder / "agents" / f"{agent_id}.agent.md").write_text(
        f'{head}memory:\n  mode: "user"\n  read_collections: {names}\n'
        f"  write_collections: {names}\n---\n# Purpose\n\nTests.\n"
    )
    grants = "".join(f'  - ref: "{id}"\n    access: "read-write"\n' for id in ids)
    (folder / "iam" / f"{agent_id}.iam.md").write_text(
        f"{head}collections:\n{grants}---\n# Purpose\n\nTests.\n"
    )


class Agent:
    """A target with sessions in Valkey and two memories, on a service of its own.

    All scenarios share its server: each has its own people, and leaves nothing that waits.
    """

    def __init__(
        self, target: Target, backing: Backing, folder: Path, provider: MemoryProvider
    ) -> None:
        self.target, self.provider, self.folder = target, provider, folder
        self.service = AgentCore()
        self.service.start()
        add = self.service.add_memory
        kinds = ("semantic:/users/{actorId}/facts", "user_preference:/users/{actorId}/preferences")
        self.notes = add("notes", *kinds)
        self.team = add("team", "semantic:/projects/{projectid}/facts", keys=("projectid",))
        self.home = Home(target, backing, folder, "valkey")
        notes = collection("notes", "user", NOTES, batch_size=4)
        team = collection("team", "project", TEAM)
        name_collections(self.home.folder, self.home.agent_id, notes, team, before="sessions")
        self._server: Server | None = None
        self._all: list[Server] = []
        self._is_down = False

    @property
    def variables(self) -> dict[str, str]:
        ids = {"SECRETS_AGENTCORE_NOTES": self.notes, "SECRETS_AGENTCORE_TEAM": self.team}
        store = self.home.store
        return {**store.environment(store.address), **self.service.environment(), **ids}

    @property
    def server(self) -> Server:
        """The server that scenarios share."""
        if self._server is None:
            self._server = self.fresh()
            assert Chat(self._server, self.provider, actor="nobody").say("Wake up.").turn == 1
            self.idle()
        return self._server

    def fresh(self, **settings: int | str) -> Server:
        given = {**SETTINGS, **self.variables, **settings}
        origin = self.provider.origin
        server = Server(with_store(self.target), self.home.folder, origin, given)
        self._all.append(server)
        return server

    def run(self, *words: str, typed: str = "") -> subprocess.CompletedProcess[str]:
        more = {"PROJECT_ID": PROJECT, **self.variables}
        return run(self.target, self.home.folder, *words, typed=typed, **more)

    def chat(self, actor: str | None, session: str | None = None) -> Chat:
        return Chat(self.server, self.provider, session=session, actor=actor)

    def idle(self) -> None:
        """Wait until everything is recorded."""
        wait_for("a Healthy", lambda: self.ping() == "Healthy")

    def ping(self) -> str:
        return str(self.server.get("/ping").json["status"])

    def shown(self, chat: Chat, text: str) -> list[str]:
        """What the first call for a prompt showed to the model, without the canary of any Chat."""
        entries = self.provider.remembered(chat.calls(text)[0])
        return [re.sub(rf" {CANARY}\d+$", "", entry) for _, entry in entries]

    def said(self, memory: str, actor: str) -> list[tuple[str, str]]:
        """Role and text of all that a memory was told of an actor."""
        return [
            (one["conversational"]["role"], one["conversational"]["content"]["text"])
            for one in self.service.service.said(memory, actor)
        ]

    def events(self, memory: str, actor: str) -> list[Call]:
        """The requests to record something of an actor."""
        calls = self.service.calls.of("CreateEvent")
        return [call for call in calls if of(memory)(call.given) and call.given["actorId"] == actor]

    def learn_nothing(self) -> None:
        """In this scenario nothing is made of what is said."""
        self.service.service.extraction_delay = math.inf

    def down(self) -> None:
        """End the service; what it knows comes back with it."""
        self.service.stop()
        self._is_down = True

    def up(self) -> None:
        if self._is_down:
            self.service.start()
        self._is_down = False

    def settle(self) -> None:
        """As good as new for the next scenario."""
        self.service.faults.clear()
        self.up()
        if self._server is not None:
            self.idle()
        self.service.service.extraction_delay = 0
        # All scenarios are of one project.
        self.service.service.memories[self.team].records.clear()

    def stop(self) -> None:
        for server in self._all:
            server.signal()
        for server in self._all:
            server.stop()
        self.service.stop()
        for server in self._all:
            assert CANARY not in server.log, "a prompt or a reply is in a log"


def of(memory: str, **more: Any) -> Any:
    """For `where` of a fault: inputs for a memory, and with these values."""
    wanted = {"memoryId": memory, **more}
    return lambda given: wanted.items() <= given.items()
