"""A session continues with each other model: MODEL may change between any two vendors.

Nothing that only one model takes goes to another: reasoning, signatures, ids, names.
"""

import json
import uuid
from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conformance import targets
from tests.conformance.client import JSON, SESSION, Reply
from tests.conformance.replay import Replay
from tests.conformance.server import Server
from tests.conformance.targets import TARGETS, Target
from tests.conformance.test_replayed import api_of, with_recorder
from tests.stores.agents import Home, with_store
from tests.stores.stores import Backing
from tests.support.files import DOCX, DOCX_TYPE, PDF, Sample, png, sent

pytestmark = [pytest.mark.slow, pytest.mark.about("turns")]

VENDOR_TARGETS = TARGETS  # each with the renders for its other vendors
STORE = "valkey"
# Sessions as renders stored them before they marked reasoning with its model, unchanged.
STORED = Path(__file__).with_name("stored")
MODELS = {
    "chat": "gpt-test",
    "anthropic": "claude-test",
    "bedrock": "anthropic.claude-test",
    "gateway": "test/model",
}
# What a session may hold that another model refuses. A usual run has the first of each vendor.
SESSIONS = {
    "chat": [
        "reasoning-content-tool",
        "reasoning-details-tool",
        "reasoning-tool",
        "reasoning-content-two-steps",
        "thought-signature",
        "id-long",
        "id-odd",
        "id-same-in-two-steps",
        "name-with-channel",
        "surrogate-in-deletion",
        "blank-text-with-call",
        "broken-beside-whole",
    ],
    "anthropic": [
        "thinking-redacted-tool",
        "thinking-tool",
        "thinking-interleaved",
        "thinking-blank-text-tool",
        "thinking-unsigned-tool",
        "thinking-text",
        "redacted-text",
        "same-tool-id",
        "odd-tool-id",
        "citations",
        "server-tool",
        "server-tool-then-call",
        "name-with-channel",
        "broken-beside-whole",
    ],
    "bedrock": [
        "thinking-redacted-tool",
        "thinking-tool",
        "redacted-tool",
        "thinking-unsigned-tool",
        "thinking-unsigned-text",
        "thinking-blank-text-tool",
        "redacted-text",
        "same-tool-id",
        "long-tool-id",
        "citations",
        "server-tool",
        "name-with-channel",
        "broken-beside-whole",
    ],
    "gateway": ["arguments, cut after a value"],
}


class Vendors:
    """The servers of one target, one for each vendor, that share an agent and its sessions."""

    def __init__(self, target: Target, backing: Backing, folder: Path, replay: Replay) -> None:
        self.replay = replay
        base = target.variant.partition("+")[0]
        others = [it for it in targets.VENDOR_TARGETS if it.variant.partition("+")[0] == base]
        renders = [with_recorder(it) for it in (target, *others)]
        self.home = Home(renders[0], backing, folder, STORE)
        self.servers: dict[str, Server] = {}
        store = self.home.store
        for render in renders:
            api = api_of(render)
            stored = replace(with_store(render, STORE), command=render.command, start=render.start)
            settings = {**store.environment(store.address), "MODEL": MODELS[api]}
            self.servers[api] = Server(stored, self.home.folder, replay.origin, settings)

    def stop(self) -> None:
        for server in self.servers.values():
            server.signal()
        for server in self.servers.values():
            server.stop()


@pytest.fixture(scope="session")
def vendors(
    target: Target, backing: Backing, replay: Replay, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Vendors]:
    vendors = Vendors(target, backing, tmp_path_factory.mktemp("vendors"), replay)
    yield vendors
    vendors.stop()


class Conversation:
    """A session, and its faults."""

    def __init__(self, vendors: Vendors, session: str, nonce: str) -> None:
        self.vendors, self.session, self.nonce = vendors, session, nonce
        self.faults: list[str] = []

    def say(self, api: str, kind: str, name: str = "", *, files: Sequence[Sample] = ()) -> Reply:
        """Say something to the server of a vendor, and note why the vendor refuses it."""
        before = len(self.vendors.replay.of(self.nonce))
        prompt = {"prompt": f"{kind}:{name}:{self.nonce}", "files": [sent(*it) for it in files]}
        reply = self.vendors.servers[api].post(prompt, {SESSION: self.session, **JSON})
        requests = self.vendors.replay.of(self.nonce)[before:]
        reasons = [reason for request in requests for reason in request.reasons]
        if reply.status != 200:
            reasons.append(reply.error)
        self.faults += [f"{kind} to {api}: {reason}" for reason in reasons[:1]]
        return reply


@pytest.mark.full
@pytest.mark.parametrize("all_pairs", [False, True])
def test_each_vendor_continues_a_session_of_another(vendors: Vendors, all_pairs: bool) -> None:
    faults = []
    for writer in vendors.servers:
        for name in SESSIONS[writer] if all_pairs else SESSIONS[writer][:1]:
            for reader in vendors.servers:
                if reader == writer:
                    continue
                nonce = uuid.uuid4().hex
                conversation = Conversation(vendors, f"changed-{nonce}", nonce)
                conversation.say(writer, "HELLO")
                conversation.say(writer, "CASE", f"{writer}/{name}")
                conversation.say(reader, "NEXT")
                conversation.say(writer, "NEXT")
                faults += [f"{writer}, {name}: {fault}" for fault in conversation.faults]
    if faults:
        pytest.fail("\n".join(dict.fromkeys(faults)), pytrace=False)


@pytest.mark.full
def test_each_vendor_continues_a_session_with_files(vendors: Vendors) -> None:
    word = ("report.docx", DOCX_TYPE, DOCX)
    known = [("photo.png", "image/png", png()), ("report.pdf", "application/pdf", PDF)]
    for reader in vendors.servers:
        nonce = uuid.uuid4().hex
        conversation = Conversation(vendors, f"files-{nonce}", nonce)
        conversation.say("bedrock", "HELLO", files=[word, *known])
        conversation.say(reader, "NEXT")
        request = repr(vendors.replay.of(nonce)[-1].body)
        assert conversation.faults == []
        # A note stands for what only Bedrock accepts.
        assert ("which this model does not accept" in request) == (reader != "bedrock")
        assert b64encode(PDF).decode() in request


@pytest.mark.full
def test_each_vendor_continues_an_older_session(vendors: Vendors, target: Target) -> None:
    faults = []
    older = json.loads((STORED / f"{target.name}.json").read_text("utf-8"))
    for name, snapshot in older.items():
        turns = json.loads(snapshot)["app_data"]["turn"]
        for reader in vendors.servers:
            session = f"older-{uuid.uuid4()}"
            vendors.home.store.write(session, snapshot.encode())
            conversation = Conversation(vendors, session, uuid.uuid4().hex)
            reply = conversation.say(reader, "NEXT")
            if reply.status == 200 and reply.json["turn"] != turns + 1:
                conversation.faults.append(f"NEXT to {reader}: turn {reply.json['turn']}")
            faults += [f"{name}: {fault}" for fault in conversation.faults]
    if faults:
        pytest.fail("\n".join(faults), pytrace=False)
