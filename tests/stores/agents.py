"""Rendered agents on a store: folders of collections, replicas, and the command line."""

import itertools
import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.conformance.chat import CANARY, Chat
from tests.conformance.provider import Provider
from tests.conformance.server import Fleet, Server
from tests.conformance.targets import Target
from tests.installed import NODE
from tests.stores.forks import start
from tests.stores.proxy import Proxy
from tests.stores.servers import Address, wait_for
from tests.stores.stores import KINDS, PATIENT, SENTINEL, Backing, Store
from tests.support.own_servers import shared

SETTINGS = {"STORE_TIMEOUT_SECONDS": PATIENT}
HASTY = 2  # seconds that a store may take where it is to be too slow
CHECKPOINTS = 3  # of the replicas that tests share
_numbers = itertools.count(1)


def command(project: Path, *words: str) -> list[str]:
    """The command line of an installed render."""
    if (project / "package.json").exists():
        scripts = json.loads((project / "package.json").read_text())["scripts"]
        node, *options, main, name = scripts[words[0]].split()
        assert (node, name) == ("node", words[0])
        return [str(NODE), *options, str(project / main), *words]
    return [str(project / ".venv" / "bin" / "my-agent"), *words]


def with_limit(command: list[str], kilobytes: str) -> list[str]:
    """A command whose files may have no more kilobytes: as on a full disk, a write fails."""
    limit = f'trap "" XFSZ; ulimit -f {kilobytes}; exec "$@"'
    return ["bash", "-c", limit, "bash", *command]


def with_store(target: Target, store: str = "valkey") -> Target:
    """The target as rendered for this store: each render has the adapter of one."""
    others = [answer for answer in target.answers if answer[0] != "session_store"]
    return replace(
        target,
        answers=(*others, ("session_store", KINDS[store].answer)),
        command=lambda project: command(project, "serve"),
        start=start,
        store=store,
    )


class Home:
    """A folder with collections/, agents/ and iam/ as rendered, for an agent of its own name.

    The name is part of every key, so that two homes on one server share nothing.
    """

    def __init__(self, target: Target, backing: Backing, folder: Path, store: str) -> None:
        self.backing, self.agent_id = backing, f"agent-{os.getpid()}-{next(_numbers)}"
        self.target = target
        self.bring(store)
        self.folder = folder / self.agent_id
        for kind in ("collections", "agents", "iam"):
            shutil.copytree(self.project / kind, self.folder / kind)
        for kind, key in (("agent", "agents"), ("iam", "iam")):
            path = self.folder / key / f"my-agent.{kind}.md"
            text = path.read_text().replace('"my-agent"', f'"{self.agent_id}"')
            path.unlink()
            (self.folder / key / f"{self.agent_id}.{kind}.md").write_text(text)
        self.store = self.declare(store)

    @property
    def collection(self) -> Path:
        return self.folder / "collections" / "sessions.collection.md"

    def bring(self, store: str) -> None:
        """From now on run the render that has the adapter of this store."""
        self.target = with_store(self.target, store)
        self.project = self.target.project()

    def declare(self, store: str, **changes: Any) -> Store:
        """Edit the collection file, and nothing else: from now on it names this store."""
        self.store = KINDS[store](self.backing, self.agent_id)
        text = self.collection.read_text()
        declared = self.store.declared(**changes)
        self.collection.write_text(
            re.sub(r"(?s)\nscope:.*?(?=\nwriteback:)", f"\n{declared}", text)
        )
        return self.store

    def run(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a command of the render here, with the variables of its store."""
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            **self.store.environment(self.store.address),
            **variables,
        }
        process = start(
            command(self.project, *words),
            cwd=self.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        output, errors = process.communicate(timeout=60)
        return subprocess.CompletedProcess(words, process.wait(), output, errors)


@dataclass
class Replica:
    """A server of an agent, and the proxy between it and the store."""

    home: Home
    server: Server
    proxy: Proxy


class Agents:
    """The replicas of one target on one store; all are ended at the end."""

    def __init__(
        self, target: Target, backing: Backing, folder: Path, provider: Provider, store: str
    ) -> None:
        self.target, self.backing, self.folder = target, backing, folder
        self.provider, self.store_name = provider, store
        self._pair: tuple[Replica, Replica] | None = None
        self._hasty: Replica | None = None
        self._all: list[Replica] = []

    def home(self, **changes: Any) -> Home:
        home = Home(self.target, self.backing, self.folder, self.store_name)
        home.declare(self.store_name, **changes)
        return home

    def fresh(self, home: Home, **settings: int | str) -> Replica:
        """A replica of its own, for a test that ends it or needs other settings."""
        proxy = home.store.proxy()
        variables = {**SETTINGS, **home.store.environment(proxy.address), **settings}
        server = Server(home.target, home.folder, self.provider.origin, variables)
        replica = Replica(home, server, proxy)
        self._all.append(replica)
        return replica

    def pair(self) -> tuple[Replica, Replica]:
        """Two replicas for all tests that want them."""
        if self._pair is None:
            home = self.home()
            one, two = (self.fresh(home, CHECKPOINTS=CHECKPOINTS) for _ in range(2))
            for replica in (one, two):
                shared(replica.server)
                assert replica.server.post({"prompt": "Wake up."}).status == 200
            self._pair = one, two
        for replica in self._pair:
            replica.proxy.reset()
        return self._pair

    def hasty(self) -> Replica:
        """A third replica beside the pair, which does not wait long for the store."""
        if self._hasty is None:
            home = self.pair()[0].home
            home.declare(self.store_name, timeout_ms=HASTY * 1000)
            self._hasty = self.fresh(home, STORE_TIMEOUT_SECONDS=HASTY)
            server = shared(self._hasty.server)
            # Its first turns load what later ones have: they may be too slow.
            wait_for("a turn", lambda: server.post({"prompt": "Wake up."}).status == 200)
            home.declare(self.store_name)
        self._hasty.proxy.reset()
        return self._hasty

    def settle(self) -> None:
        """Every proxy hands on again."""
        for replica in self._all:
            replica.proxy.reset()

    def discard(self, replica: Replica) -> None:
        """Look at the log of a replica that has ended, and forget it."""
        self._all.remove(replica)
        replica.proxy.close()
        assert_clean(replica.server.log)

    def stop(self) -> None:
        for replica in self._all:
            replica.server.signal()
        for replica in self._all:
            replica.server.stop()
            replica.proxy.close()
        for replica in self._all:
            assert_clean(replica.server.log)


def assert_clean(log: str) -> None:
    assert CANARY not in log, "a prompt or a reply is in a log"
    assert SENTINEL not in log, "a secret is in a log"


def on(server: Server, chat: Chat) -> Chat:
    """The same session and the same words, told to another replica."""
    return chat.elsewhere(server)


class StoreFleet(Fleet):
    """A fleet whose sessions live in a store; each server is an agent of its own name."""

    def __init__(
        self, target: Target, folder: Path, provider: str, backing: Backing, store: str
    ) -> None:
        super().__init__(with_store(target, store), folder, provider)
        self.plain, self.backing, self.store = target, backing, store
        self._homes: dict[Server, Home] = {}
        self._beside: dict[Server, Server] = {}

    def fresh(self, offline: bool = False, **settings: int | str) -> Server:
        home = Home(self.plain, self.backing, self.folder, self.store)
        return self.start(home, home.store.address, offline, **settings)

    def start(
        self, home: Home, address: Address, offline: bool = False, **settings: int | str
    ) -> Server:
        """A server of an agent that reaches its store at this address, a proxy's perhaps."""
        reached: Mapping[str, int | str] = home.store.environment(address)
        origin = None if offline else self.provider
        server = Server(self.target, home.folder, origin, {**reached, **settings})
        self._all.append(server)
        self._homes[server] = home
        return server

    def home(self, server: Server) -> Home:
        """The agent of a server, and its store."""
        return self._homes[server]

    def again(self, server: Server) -> Server:
        """A new server of the same agent on the same store."""
        return self.start(self.home(server), self.home(server).store.address)

    def beside(self, server: Server) -> Server:
        """A second server of the same agent, for all tests that want it."""
        if server not in self._beside:
            self._beside[server] = shared(self.again(server))
        return self._beside[server]
