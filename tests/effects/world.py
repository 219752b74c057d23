"""Replicas of an agent with effects on one store, and what a client does with them."""

import json
import random
import signal
import time
from typing import Any
from uuid import uuid4

from tests.conformance.chat import Chat
from tests.conformance.client import JSON, KEY, Exchange, Reply
from tests.conformance.steps import Call, Refuse
from tests.effects.counter import CounterService
from tests.stores.agents import Agents, Replica

SETTINGS = {
    "TURN_TIMEOUT_SECONDS": 20,
    "EFFECT_TIMEOUT_SECONDS": 2,
    "STORE_TIMEOUT_SECONDS": 5,
    "HISTORY_MESSAGES": 10_000,  # the tests look for the results that the model got
    "MAX_EFFECTS": 10_000,
    "MAX_EFFECT_BYTES": 100_000_000,
}
PATIENCE_SECONDS = 120


class World:
    """Two replicas; a killed replica is replaced."""

    def __init__(self, agents: Agents, service: CounterService, **settings: int) -> None:
        self.agents = agents
        self.service = service
        self.settings = SETTINGS | settings
        self.home = agents.home()
        self.replicas = [self.start() for _ in range(2)]
        self.kills = 0

    def start(self) -> Replica:
        return self.agents.fresh(self.home, COUNTER=self.service.origin, **self.settings)

    def chat(self, at: int = 0, session: str | None = None) -> Chat:
        return Chat(self.replicas[at].server, self.agents.provider, session)

    def kill(self, at: int = 0) -> None:
        """End a replica with SIGKILL, and start another."""
        replica = self.replicas[at]
        replica.server.signal(signal.SIGKILL)
        replica.server.exit_code()
        replica.proxy.cut()
        self.agents.discard(replica)
        self.replicas[at] = self.start()
        self.kills += 1

    def stop(self, at: int) -> None:
        """End a replica with SIGTERM, and start another."""
        replica = self.replicas[at]
        replica.server.stop()
        self.agents.discard(replica)
        self.replicas[at] = self.start()

    def wait_idle(self, at: int) -> None:
        """Wait until a replica runs no turn and no effect."""
        server = self.replicas[at].server
        deadline = time.monotonic() + PATIENCE_SECONDS
        while server.get("/ping").json["status"] != "Healthy":
            assert time.monotonic() < deadline, server.log
            time.sleep(0.02)

    def records(self, session: str) -> list[dict[str, Any]]:
        """The records of a session, as the store has them."""
        snapshot = self.home.store.snapshot(session)
        records = snapshot["app_data"].get("records", {}) if snapshot else {}
        calls: list[dict[str, Any]] = records.get("effects", {}).get("calls", [])
        return calls

    def listed(self, *sessions: str) -> list[dict[str, Any]]:
        """The effects that `effects list` prints."""
        done = self.home.run("effects", "list", *sessions, "--json", **environment())
        assert done.returncode == 0, done.stderr
        effects: list[dict[str, Any]] = json.loads(done.stdout)["effects"]
        return effects

    def finish(self, *sessions: str) -> None:
        """Wait until no session has a scheduled effect, opening each session as a client does."""
        self.home.store.settle()
        deadline = time.monotonic() + PATIENCE_SECONDS
        for session in sessions:
            while any(call["status"] == "scheduled" for call in self.records(session)):
                assert time.monotonic() < deadline, self.records(session)
                if self.home.store.name != "valkey":  # any process continues by itself
                    self.open(session)
                time.sleep(0.2)

    def open(self, session: str) -> None:
        """Run a turn in a session, as its client does."""
        self.chat(random.randrange(2), session).say("Hello.", headers=JSON)


def has_called(chat: Chat, text: str, name: str) -> bool:
    """Whether the model has made the call: a late request of a killed process may take the step."""
    last = [call for call in chat.calls(text) if call.outcome == "finished"][-1]
    return any(entry[0] == "call" and entry[2] == {"name": name} for entry in chat.history(last))


def environment() -> dict[str, str]:
    return {name: str(value) for name, value in SETTINGS.items()}


class Client:
    """A client of a session: it repeats each turn until it knows the turn's end."""

    def __init__(self, world: World, chosen: random.Random) -> None:
        self.world = world
        self.chosen = chosen
        self.session = f"session-{uuid4()}"
        self.turns = 0
        self.committed: list[tuple[int, str, str]] = []  # turn, tool, name
        self.replaced: set[str] = set()
        self.denied: set[str] = set()

    def take_turn(self, tool: str, fault: str, *, replaces: bool = False) -> None:
        """Take a turn with one call; `fault` happens at its first try."""
        name = f"{tool}-{uuid4().hex[:8]}"
        key = {**JSON, KEY: uuid4().hex}
        text = f"Call {name}."
        step = Call(tool, {"name": name})
        at = self.chosen.randrange(2)
        chat = self.world.chat(at, self.session)
        body: dict[str, Any] = {"prompt": text + chat.tag}
        number = self.turns + 1
        if replaces and self.committed:
            number = self.committed[-1][0]
            body["replace_turn"] = number
        steps: list[Any] = [[step], ["Done."]]
        if fault == "the model fails":
            steps = [[step], [Refuse(500, stays=False)]]
        chat.script(text, *steps)
        exchange = chat.send(body, key)
        self._disturb(exchange, at, fault)
        reply: Reply | None = None
        for attempt in range(12):
            at = self.chosen.randrange(2)
            chat = chat.elsewhere(self.world.replicas[at].server)
            chat.script(text, [step], ["Done."])
            reply = chat.post(body, key)
            if reply.status == 200 and "waiting" in reply.json:
                reply = self._answer(chat, reply, name, key)
            if reply.status == 200 and "waiting" not in reply.json:
                break
            time.sleep(0.1 * attempt)
        assert reply
        assert reply.status == 200, reply
        self.turns = reply.json["turn"]
        assert self.turns == number
        later = [row for row in self.committed if row[0] >= number]
        self.replaced |= {row[2] for row in later}
        self.committed = [row for row in self.committed if row[0] < number]
        if name not in self.denied and has_called(chat, text, name):
            self.committed.append((number, tool, name))

    def _answer(self, chat: Chat, reply: Reply, name: str, key: dict[str, str]) -> Reply:
        ids = [call["id"] for call in reply.json["waiting"]]
        chat.script(f"Call {name}.", ["Done."])
        if self.chosen.random() < 0.3:
            self.denied.add(name)
            return chat.post({"deny": [{"id": id, "reason": "No."} for id in ids]}, key)
        self.denied.discard(name)
        return chat.post({"approve": ids}, key)

    def _disturb(self, exchange: Exchange, at: int, fault: str) -> None:
        proxy = self.world.replicas[at].proxy
        if fault == "a kill":
            time.sleep(self.chosen.uniform(0, 0.25))
            self.world.kill(at)
            exchange.leave()
        elif fault == "the client leaves":
            time.sleep(self.chosen.uniform(0, 0.2))
            exchange.leave()
            self.world.wait_idle(at)
        elif fault in {"cut request", "cut reply"}:
            proxy.at_save = fault
            exchange.reply()
            proxy.reset()
        elif fault == "a freeze":
            proxy.mode = "hang"
            exchange.leave()
            time.sleep(0.3)
            proxy.reset()
            self.world.wait_idle(at)
        elif fault == "a kill after the commit":
            exchange.reply()
            time.sleep(self.chosen.uniform(0, 0.02))
            self.world.kill(at)
        else:
            exchange.reply()
