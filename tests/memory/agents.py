"""Agents with long-term memory: their collections, their servers and their command line."""

import itertools
import json
import math
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from tests.agentcore.calls import Call
from tests.agentcore.server import AgentCore
from tests.conformance.chat import CANARY, Chat
from tests.conformance.server import Server
from tests.conformance.targets import Target
from tests.installed import COMPILED, installed
from tests.memory.provider import MemoryProvider
from tests.stores.agents import command, with_limit
from tests.stores.forks import start
from tests.stores.servers import wait_for
from tests.stores.stores import KINDS, Backing
from tests.support.own_servers import shared

AGENT = "my-agent"  # as rendered
PROJECT = "apollo"
SETTINGS: dict[str, int | str] = {
    "RECALL_TIMEOUT_SECONDS": 20,  # what is slow by chance is recalled all the same
    "PROJECT_ID": PROJECT,
    "ADD_MEMORY_TOOL": 1,
    "TURN_TIMEOUT_SECONDS": 60,
    "MAX_PROMPT_CHARS": 3_000_000,
    "MAX_BODY_BYTES": 4_000_000,
}
RECALL = 3  # seconds that the turns of a hasty server wait for what is remembered
HUNG = 120  # seconds after which a process that should have ended is said to hang
_numbers = itertools.count(1)

# What each namespace is asked for: top_k and relevance_score.
NOTES = {"/users/{actorId}/facts": (2, 0.5), "/users/{actorId}/*": (30, 0.2)}
TEAM = {"/projects/{projectId}/facts": (3, 0.4)}


def collection(
    id: str,
    lifetime: str,
    namespaces: Mapping[str, tuple[int, float]] | None,
    batch_size: int = 1,
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
  memory_id_secret: "secrets/agentcore/{id}"
  region: "us-east-1"
{config}  batch_size: {batch_size}
writeback:
  enabled: true
---
# Purpose

A memory for tests.
"""


def unique(name: str) -> str:
    """A name that none of the others begins with, and that no UUID can contain."""
    return f"{name}-{os.getpid()}-{next(_numbers)}x"


def with_memory(target: Target, store: str) -> Target:
    """The target as rendered with long-term memory, and with this store of sessions or none."""
    answers = [("long_term_memory", "agentcore")]
    answers += [("session_store", store)] if store else []
    return replace(
        target,
        answers=tuple(answers),
        command=lambda project: command(project, "serve"),
        start=start,
        store=store,
    )


class Home:
    """A folder with collections/, agents/ and iam/ as rendered, in which commands run."""

    def __init__(self, target: Target, folder: Path) -> None:
        self.target, self.folder = target, folder / unique("home")
        self.project = installed(target.variant, **dict(target.answers))
        for kind in ("collections", "agents", "iam"):
            shutil.copytree(self.project / kind, self.folder / kind)

    @property
    def sessions(self) -> Path:
        """The collection that declares where sessions live; only some renders have it."""
        return self.folder / "collections" / "sessions.collection.md"

    def declare(self, *collections: str, agent_id: str = AGENT) -> None:
        """Let these collections, and that of the sessions, be all that an agent uses."""
        ids = [self.sessions.name.partition(".")[0]] if self.sessions.exists() else []
        for text in collections:
            ids += re.findall(r'collection_id: "(.*)"', text)
            (self.folder / "collections" / f"{ids[-1]}.collection.md").write_text(text)
        for path in (self.folder / "collections").glob("*.collection.md"):
            if path.name.partition(".")[0] not in ids:
                path.unlink()
        (self.folder / "agents" / f"{AGENT}.agent.md").unlink()
        (self.folder / "iam" / f"{AGENT}.iam.md").unlink()
        head, names = f'---\nspec_version: "1.2"\nagent_id: "{agent_id}"\n', json.dumps(ids)
        (self.folder / "agents" / f"{agent_id}.agent.md").write_text(
            f'{head}memory:\n  mode: "user"\n  read_collections: {names}\n'
            f"  write_collections: {names}\n---\n# Purpose\n\nTests.\n"
        )
        grants = "".join(f'  - ref: "{id}"\n    access: "read-write"\n' for id in ids)
        (self.folder / "iam" / f"{agent_id}.iam.md").write_text(
            f"{head}collections:\n{grants}---\n# Purpose\n\nTests.\n"
        )

    def run(
        self, *words: str, typed: str = "", disk: str = "", **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command of the render here, with these variables and no others.

        With `disk`, no file may have more kilobytes.
        """
        arguments = command(self.project, *words)
        own = {"PATH": os.environ["PATH"], "HOME": str(self.folder)}
        with TemporaryFile("w+") as file:
            file.write(typed)
            file.seek(0)
            process = start(
                with_limit(arguments, disk) if disk else arguments,
                cwd=self.folder,
                env=own | variables,
                stdin=file,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        output, errors = process.communicate(timeout=HUNG)
        code = int(process.returncode or 0)
        return subprocess.CompletedProcess(process.args, code, output, errors)

    def local(self) -> str:
        """All that is kept in the files of a trial."""
        return "".join(path.read_text() for path in (self.folder / ".memory").glob("*"))


class Agent:
    """A target with two memories, on a service of its own, and with a store of sessions or none.

    All scenarios share its server: each has its own people, and leaves nothing that waits.
    """

    def __init__(
        self, target: Target, backing: Backing, folder: Path, provider: MemoryProvider
    ) -> None:
        self.target, self.provider = target, provider
        self.service = AgentCore()
        self.service.start()
        add = self.service.add_memory
        kinds = ("semantic:/users/{actorId}/facts", "user_preference:/users/{actorId}/preferences")
        self.notes = add("notes", *kinds)
        self.team = add("team", "semantic:/projects/{projectid}/facts", keys=("projectid",))
        self.home = Home(target, folder)
        notes = collection("notes", "user", NOTES, batch_size=4)
        team = collection("team", "project", TEAM)
        agent_id = unique("agent")  # part of each key of the store
        self.home.declare(notes, team, agent_id=agent_id)
        self.store = KINDS[target.store](backing, agent_id) if target.store else None
        self._shared: dict[str, Server] = {}
        self._all: list[Server] = []
        self._is_down = False

    @property
    def variables(self) -> dict[str, str]:
        """What reaches the service, its memories and the store."""
        ids = {"SECRETS_AGENTCORE_NOTES": self.notes, "SECRETS_AGENTCORE_TEAM": self.team}
        reached = self.store.environment(self.store.address) if self.store else {}
        return {**reached, **self.service.environment(), **ids}

    @property
    def server(self) -> Server:
        """The server that scenarios share."""
        return self._awake("shared", {})

    @property
    def hasty(self) -> Server:
        """The server of scenarios in which a recall takes all of its time."""
        return self._awake("hasty", {"RECALL_TIMEOUT_SECONDS": RECALL})

    def _awake(self, name: str, settings: Mapping[str, int | str]) -> Server:
        if name not in self._shared:
            server = self._shared[name] = shared(self.fresh(**settings))
            # The vendors' clients load when they are first used.
            assert Chat(server, self.provider, actor="nobody").say("Wake up.").turn == 1
            self.idle()
        return self._shared[name]

    def fresh(self, **settings: int | str) -> Server:
        """A server of its own, for a scenario that ends it."""
        given = {**SETTINGS, **self.variables, **settings}
        server = Server(self.target, self.home.folder, self.provider.origin, given)
        self._all.append(server)
        return server

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command where the servers run, with their variables."""
        return self.home.run(*words, PROJECT_ID=PROJECT, **self.variables)

    def chat(self, actor: str | None) -> Chat:
        return Chat(self.server, self.provider, actor=actor)

    def idle(self) -> None:
        """Wait until everything is recorded."""
        for server in self._shared.values():
            wait_for("a Healthy", lambda server=server: ping(server) == "Healthy")  # type: ignore[misc]

    def ping(self) -> str:
        return ping(self.server)

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
        self.idle()
        self.service.service.extraction_delay = 0
        self.service.service.frail_tokens = False
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


def of_owner(
    agent: Agent,
    folder: Path,
    sources: Mapping[str, str],
    home: Home | None = None,
    **settings: int | str,
) -> Server:
    """A server of the agent with files, by their paths, that an owner has made their own.

    Its collections are those of the agent, or of another home.
    """
    project = agent.home.project
    shutil.copytree(project / "src", folder / "src")
    is_node = (project / "package.json").exists()
    place = folder / "src" / ("" if is_node else "my_agent")
    for name, text in sources.items():
        if (place / name).exists():
            (place / name).write_text(text)
    if is_node:
        shutil.copy(project / "package.json", folder)
        (folder / "node_modules").symlink_to((project / "node_modules").resolve())
        serve = command(folder, "serve")
    else:
        code = "from my_agent.main import cli; cli()"
        serve = [str(project / ".venv" / "bin" / "python"), "-c", code, "serve"]
    target = replace(agent.target, command=lambda _: serve, start=subprocess.Popen)
    here = {"PYTHONPATH": str(folder / "src"), "NODE_COMPILE_CACHE": str(COMPILED)}
    given = {**SETTINGS, **agent.variables, **here, **settings}
    return Server(target, (home or agent.home).folder, agent.provider.origin, given)


def ping(server: Server) -> str:
    """Whether a server has something left to do."""
    return str(server.get("/ping").json["status"])


def of(memory: str, **more: Any) -> Any:
    """For `where` of a fault: inputs for a memory, and with these values."""
    wanted = {"memoryId": memory, **more}
    return lambda given: wanted.items() <= given.items()
