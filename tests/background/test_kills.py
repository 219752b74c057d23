"""`kill -9` of replicas behind the proxy, while clients run background turns and follow them.

Each kill also meets turns and readers of other clients: all clients run turn after turn. The weekly
run has 100 kills for each target; a usual run has six.
"""

import random
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPException
from itertools import chain
from pathlib import Path

import pytest

from tests.background.follower import Background, Event, Follower
from tests.conformance.client import KEY, Reply
from tests.conformance.provider import Provider
from tests.conformance.server import Server
from tests.conformance.steps import Drip, Part
from tests.deploy.test_container import HAPROXY, proxied
from tests.stores.agents import Agents, Replica
from tests.stores.servers import free_port

FULL = (pytest.mark.slow, pytest.mark.full)
REPLICAS = 3
CLIENTS = 4
TURNS = 10  # of a session
WORDS = range(40)
PARTS: list[Part] = [part for word in WORDS for part in (f"{word} ", Drip(1, 20))]
TEXT = "".join(f"{word} ." for word in WORDS)
PATIENCE = 60  # seconds for a reader to get an end, and for a client to start a turn
GATEWAY = (502, 503, 504)  # the proxy has no replica, or the replica was killed


class Watchers:
    """What has happened in the whole run."""

    def __init__(self) -> None:
        self.over = threading.Event()  # no more kills: clients end with their turns
        self.lock = threading.Lock()
        self.ends = dict[str, int]()
        self.reconnects = 0

    def count(self, reader: "Reader") -> None:
        with self.lock:
            name = reader.end.name if reader.end.name == "done" else reader.end.error
            self.ends[name] = self.ends.get(name, 0) + 1
            self.reconnects += reader.connections - 1


@dataclass
class Reader:
    """A client that follows one turn to its end, over as many connections as that takes."""

    chat: Background
    turn_id: str
    events: list[Event] = field(default_factory=list)
    connections: int = 0

    def read(self) -> "Reader":
        deadline = time.monotonic() + PATIENCE
        while not self.events or self.events[-1].name == "message":
            assert time.monotonic() < deadline, f"{self.turn_id} has no end: {self.events[-1:]}"
            try:
                self._connect()
            except (OSError, HTTPException):
                time.sleep(0.05)
        return self

    @property
    def end(self) -> Event:
        return self.events[-1]

    @property
    def text(self) -> str:
        return "".join(event.data for event in self.events if event.name == "message")

    def _connect(self) -> None:
        follower = self.chat.follow(self.events[-1].id if self.events else "")
        try:
            if follower.status in GATEWAY:
                raise ConnectionError("the proxy has no replica")
            assert follower.status == 200, follower.exchange.reply()
            self.connections += 1
            while event := follower.next():
                assert not self.events or self.events[-1].name == "message", "two ends"
                self.events.append(event)
                self._check(follower)
        finally:
            follower.leave()

    def _check(self, follower: Follower) -> None:
        """Each event has the number after that of the event before it."""
        *_, event = self.events
        turn_id, number = event.id.split(".")
        assert turn_id == self.turn_id
        assert event.name == "error" or int(number) == len(self.events), follower.exchange
        assert event.name == "error" or TEXT.startswith(self.text)


def begin(chat: Background, text: str, key: str) -> str:
    """Start a turn, or start it again with its key while it may be running, and return its id."""
    deadline = time.monotonic() + PATIENCE
    while True:
        assert time.monotonic() < deadline, f"{text} did not start"
        try:
            reply: Reply = chat.try_begin(text, headers={KEY: key})
        except (OSError, HTTPException):
            continue
        if reply.status == 202 and not reply.truncated:
            return str(reply.json["turn_id"])
        assert reply.status in GATEWAY, reply
        assert reply.content_type == "text/html", reply
        time.sleep(0.05)


def run_turn(chat: Background, number: int, run: Watchers) -> str:
    """Run a turn with two readers, again after each loss, and return its prompt."""
    text = f"Turn {number}."
    chat.provider.script(text + chat.tag, PARTS, endless=True)
    with ThreadPoolExecutor(1) as pool:
        while True:
            turn_id = begin(chat, text, f"key-{number}")
            other = pool.submit(Reader(chat, turn_id).read)
            readers = [Reader(chat, turn_id).read(), other.result()]
            for reader in readers:
                run.count(reader)
                assert reader.end.name == "done" or reader.end.error == "turn_lost", reader.end
            # The replica may have been killed after one of the readers had the end.
            done = [reader for reader in readers if reader.end.name == "done"]
            for reader in done:
                assert (reader.text, reader.end.data["turn"]) == (TEXT, number)
            if done:
                return text


def talk(front: Server, provider: Provider, run: Watchers) -> list[tuple[Background, list[str]]]:
    """Run session after session until the end of the run, and return each with its prompts."""
    sessions = list[tuple[Background, list[str]]]()
    while not run.over.is_set():
        chat, texts = Background(front, provider), list[str]()
        sessions.append((chat, texts))
        while not run.over.is_set() and len(texts) < TURNS:
            texts.append(run_turn(chat, len(texts) + 1, run))
    return sessions


class Replicas:
    """Replicas that are killed and started again, each at its own port."""

    def __init__(self, agents: Agents) -> None:
        self.agents, self.home = agents, agents.home()
        self.ports = [free_port() for _ in range(REPLICAS)]
        self.running = [self._start(port) for port in self.ports]

    def _start(self, port: int) -> Replica:
        replica = self.agents.fresh(self.home, PORT=port)
        assert replica.server.address[1] == port
        return replica

    def kill(self, number: int) -> None:
        dying = self.running[number]
        dying.server.signal(signal.SIGKILL)
        assert dying.server.exit_code() == -signal.SIGKILL
        self.running[number] = self._start(self.ports[number])
        self.agents.discard(dying)


@contextmanager
def clients(front: Server, provider: Provider, run: Watchers) -> Iterator[None]:
    """Clients that talk meanwhile; at the end, their sessions must have each turn once."""
    with ThreadPoolExecutor(CLIENTS) as pool:
        talks = [pool.submit(talk, front, provider, run) for _ in range(CLIENTS)]
        try:
            yield
        finally:
            run.over.set()
        for chat, texts in chain.from_iterable(talk.result() for talk in talks):
            expected = [entry for text in texts for entry in (("user", text), ("assistant", TEXT))]
            assert chat.recalled() == expected


@pytest.mark.full
@pytest.mark.skipif(HAPROXY is None, reason="there is no haproxy: apt-get install haproxy")
@pytest.mark.parametrize("kills", [6, pytest.param(100, marks=(*FULL, pytest.mark.timeout(1800)))])
def test_killed_replicas_cost_no_reader_an_event_and_no_turn_runs_twice(
    agents: Agents, provider: Provider, tmp_path: Path, kills: int
) -> None:
    replicas, run = Replicas(agents), Watchers()
    servers = [replica.server for replica in replicas.running]
    with proxied(servers, tmp_path / "proxy") as front, clients(front, provider, run):
        for _ in range(kills):
            time.sleep(random.uniform(0.2, 1.2))
            replicas.kill(random.randrange(REPLICAS))
            if run.over.is_set():
                break
    print(f"{kills} kills: {run.ends}, {run.reconnects} reconnects")
    assert run.ends.get("turn_lost", 0) >= kills / 6, run.ends
    assert run.reconnects >= kills / 6, run.reconnects
