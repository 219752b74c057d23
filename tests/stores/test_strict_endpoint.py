"""An endpoint of an owner that keeps exactly the fields of the specification, or loses others."""

import json
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest

from tests.conformance.chat import Chat, assert_failed, echoed
from tests.conformance.client import JSON, KEY
from tests.conformance.provider import Provider
from tests.conformance.server import Server
from tests.conformance.targets import TARGETS
from tests.stores.agents import Home, StoreFleet, on
from tests.stores.servers import Address
from tests.stores.stores import Backing

HEADERS = ("Authorization", "Content-Type", "If-Match", "If-None-Match")
USUAL = ("strands-python", "vercel-typescript")
Snapshot = dict[str, Any]


def documented(snapshot: Snapshot) -> Snapshot:
    """What an endpoint keeps that has a column for each field of the specification."""
    data = snapshot["data"]
    kept = {name: data.get(name) for name in ("messages", "state", "system_prompt")}
    return {
        "data": kept,
        "schema_version": snapshot["schema_version"],
        "created_at": snapshot["created_at"],
    }


def without_state(snapshot: Snapshot) -> Snapshot:
    kept = documented(snapshot)
    return {**kept, "data": {**kept["data"], "state": {}}}


def with_decimals(text: str) -> str:
    """JSON as Gson and DynamoDB's Decimal write it: integers have a fraction."""
    return re.sub(r"(?<=[ \[])([0-9]+)(?=[,}\]])", r"\1.0", text)


@dataclass
class Between:
    """What stands between the agents and the endpoint of the other tests."""

    address: Address
    keep: Callable[[Snapshot], Snapshot | None] = documented  # None: acknowledged, not kept
    show: list[Callable[[str], str]] = field(default_factory=list)  # for each load once
    after_mark: list[Callable[[], object]] = field(default_factory=list)  # of a quarantine


@pytest.fixture(scope="module")
def between(backing: Backing) -> Iterator[Between]:
    host, port = backing.endpoint
    hooks = Between(("", 0))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            is_snapshot = self.path.partition("?")[0] == "/snapshots"
            is_mark = False
            if is_snapshot and self.command == "POST":
                request = json.loads(body)
                kept = hooks.keep(request["snapshot"])
                if kept is None:
                    self.answer(200, '{"ok": true}', {})
                    return
                body = json.dumps({**request, "snapshot": kept}).encode()
                is_mark = "set_aside" in body.decode() and request["is_latest"]
            sent = {name: self.headers[name] for name in HEADERS if name in self.headers}
            url = f"http://{host}:{port}{self.path}"
            # Without `verify`, each request would load all certificates.
            found = httpx.request(self.command, url, headers=sent, content=body, verify=False)
            text = found.text
            if is_mark and hooks.after_mark:
                hooks.after_mark.pop()()
            if is_snapshot and self.command == "GET" and found.content and hooks.show:
                text = hooks.show.pop(0)(text)
            self.answer(found.status_code, text, {"ETag": found.headers.get("ETag", "")})

        do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815

        def answer(self, status: int, text: str, headers: dict[str, str]) -> None:
            self.send_response(status)
            sent = text.encode()
            for name, value in {**headers, "Content-Length": str(len(sent))}.items():
                if value:
                    self.send_header(name, value)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(sent)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        hooks.address = ("127.0.0.1", server.server_port)
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield hooks
        server.shutdown()


@dataclass
class Pair:
    home: Home
    one: Server
    two: Server
    between: Between

    def check(self, **hooks: Any) -> tuple[int, str]:
        """The exit code of `check --connect`, and its errors."""
        self.between.keep = hooks.get("keep", documented)
        self.between.show = hooks.get("show", [])
        reached = self.home.store.environment(self.between.address)
        done = self.home.run("check", "--connect", **reached)
        errors = [line for line in done.stdout.splitlines() if "AML-E160" in line]
        return done.returncode, "\n".join(errors)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(target.name, marks=() if target.name in USUAL else pytest.mark.full)
        for target in TARGETS
    ],
)
def pair(
    request: pytest.FixtureRequest,
    between: Between,
    backing: Backing,
    provider: Provider,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Pair]:
    (target,) = (target for target in TARGETS if target.name == request.param)
    folder = tmp_path_factory.mktemp(target.name)
    fleet = StoreFleet(target, folder, provider.origin, backing, "custom-rest")
    home = Home(target, backing, folder, "custom-rest")
    one, two = (fleet.start(home, between.address) for _ in range(2))
    yield Pair(home, one, two, between)
    fleet.stop()


@pytest.fixture(autouse=True)
def strict(pair: Pair) -> None:
    pair.between.keep, pair.between.show = documented, []


@pytest.mark.slow
def test_an_endpoint_that_keeps_the_documented_fields_loses_nothing(
    pair: Pair, provider: Provider
) -> None:
    chat = Chat(pair.one, provider, actor="ada")
    assert chat.say("One.").turn == 1
    assert chat.say("Two.", headers={KEY: "key-2"}).turn == 2
    beside = on(pair.two, chat)
    replayed = beside.say("Two.", headers={KEY: "key-2", **JSON})
    assert (replayed.json["turn"], replayed.json["reply"]) == (2, "You said: Two.")
    assert beside.recalled("Three.") == echoed("One.", "Two.")
    stranger = Chat(pair.one, provider, session=chat.session, actor="bob")
    assert_failed(stranger.say("Mine?", headers=JSON), 403, "session_forbidden", chat.session)
    assert chat.replace(3, "Three again.").turn == 3
    stored = json.loads(pair.home.store.read(chat.session) or b"")
    assert set(stored) == {"data", "schema_version", "created_at"}
    assert chat.end(headers=JSON).status == 200
    assert beside.say("Anew.").turn == 1
    assert pair.check() == (0, "")


@pytest.mark.slow
def test_the_mark_of_a_quarantine_lasts_or_the_turn_fails(pair: Pair, provider: Provider) -> None:
    chat, store = Chat(pair.one, provider), pair.home.store
    assert chat.say("One.").turn == 1
    damaged = (store.read(chat.session) or b"")[:-9]
    store.write(chat.session, damaged)
    for _ in range(2):  # what the endpoint acknowledges without keeping it does not add up
        pair.between.keep = lambda snapshot: (
            None if not snapshot["data"]["state"].get("set_aside") else documented(snapshot)
        )
        assert_failed(chat.say("Two.", headers=JSON), 503, "store_unavailable", chat.session)
        assert store.quarantined(chat.session) == [damaged]
    pair.between.keep = documented
    assert_failed(chat.say("Two.", headers=JSON), 409, "session_corrupt", chat.session)
    assert store.quarantined(chat.session) == [damaged]
    assert chat.say("Two.").turn == 1
    assert on(pair.two, chat).say("Three.").turn == 2


@pytest.mark.full
def test_a_session_that_begins_in_a_quarantine_is_no_failure_of_the_endpoint(
    pair: Pair, provider: Provider
) -> None:
    chat, store = Chat(pair.one, provider), pair.home.store
    assert chat.say("One.").turn == 1
    damaged = (store.read(chat.session) or b"")[:-9]
    store.write(chat.session, damaged)
    beside = on(pair.two, chat)
    pair.between.after_mark = [lambda: beside.say("Other.")]
    assert_failed(chat.say("Two.", headers=JSON), 409, "session_corrupt", chat.session)
    assert chat.recalled("Three.") == echoed("Other.")
    assert store.quarantined(chat.session) == [damaged]


@pytest.mark.slow
@pytest.mark.rows(where=lambda row: row["pair"].startswith("strands"))  # whose agents have a state
def test_a_key_of_the_state_of_an_agent_lasts(pair: Pair, provider: Provider) -> None:
    chat, store = Chat(pair.one, provider), pair.home.store
    assert chat.say("One.").turn == 1
    snapshot = json.loads(store.read(chat.session) or b"")
    snapshot["data"]["state"]["_session"] = {"basket": 3}
    store.write(chat.session, json.dumps(snapshot).encode())
    assert on(pair.two, chat).say("Two.").turn == 2
    stored = json.loads(store.read(chat.session) or b"")
    assert stored["data"]["state"]["_session"] == {"basket": 3}


@pytest.mark.slow
def test_integers_that_come_as_decimals_are_integers(pair: Pair, provider: Provider) -> None:
    chat, beside = Chat(pair.one, provider), Chat(pair.two, provider)
    beside.session = chat.session
    assert with_decimals('{"turn": 1, "turns": [{"at": 0, "key": null}]}').count(".0") == 2
    for number, agent in enumerate([chat, beside, chat], 1):
        pair.between.show = [with_decimals] * 3
        reply = agent.say("Hello.", headers=JSON)
        assert len(pair.between.show) < 3, "it was loaded"
        assert (reply.status, reply.body.count(f'"turn":{number}'.encode())) == (200, 1), reply


@pytest.mark.slow
def test_one_bad_read_costs_no_session(pair: Pair, provider: Provider) -> None:
    chat = Chat(pair.one, provider)
    assert chat.say("One.").turn == 1
    pair.between.show = [lambda text: text[:-9]]
    assert on(pair.two, chat).recalled("Two.") == echoed("One.")
    assert pair.between.show == []
    pair.between.show = [lambda text: text[:-9], lambda text: text[:-8]]
    assert_failed(chat.say("Three.", headers=JSON), 503, "store_unavailable", chat.session)
    assert pair.between.show == []
    assert pair.home.store.quarantined(chat.session) == []
    assert "two reads returned different unreadable data" in pair.one.log
    assert chat.say("Three.").turn == 3


@pytest.mark.full
def test_check_compares_the_returned_snapshot(pair: Pair) -> None:
    lossy: dict[str, dict[str, Any]] = {
        "cannot be loaded again": {"keep": lambda _: None},
        # The second part of the first message is a file, which is in a state of its own.
        "missing fields: scope, data.messages[0].content[1].data, data.state.name, app_data.": {
            "keep": without_state
        },
        "missing fields: app_data.turn.": {
            "show": [str, lambda text: text.replace('"turn": 1', '"turn": "1"')]
        },
    }
    for words, hooks in lossy.items():
        code, errors = pair.check(**hooks)
        assert (code, words in errors) == (1, True), errors
