"""The fallback model takes over within a turn, without the reasoning of the first model."""

import uuid
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.conformance import test_fallback
from tests.conformance.client import JSON, SESSION
from tests.conformance.replay import Replay
from tests.conformance.server import Fleet, Server
from tests.conformance.targets import Target
from tests.conformance.test_replayed import api_of, with_recorder

pytestmark = [pytest.mark.slow, pytest.mark.about("turns")]

VENDOR_TARGETS = [row for row in test_fallback.VENDOR_TARGETS if "gateway" not in row.name]
THEN_UNAVAILABLE = {
    "chat": "chat/reasoning-then-unavailable",
    "anthropic": "anthropic/thinking-then-unavailable",
    "bedrock": "bedrock/thinking-then-unavailable",
}


@pytest.fixture(scope="session")
def server(
    target: Target, replay: Replay, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    recorder = replace(with_recorder(target), name=target.name)
    fleet = Fleet(recorder, tmp_path_factory.mktemp("fallback"), replay.origin)
    yield fleet.fresh(MODEL_FALLBACK="second-model")
    fleet.stop()


def test_the_fallback_model_gets_no_reasoning(
    server: Server, replay: Replay, target: Target
) -> None:
    nonce = uuid.uuid4().hex
    headers = {SESSION: f"fallback-{nonce}", **JSON}
    for said in ("HELLO:", f"CASE:{THEN_UNAVAILABLE[api_of(target)]}", "NEXT:"):
        reply = server.post({"prompt": f"{said}:{nonce}"}, headers)
        assert reply.status == 200, [request.reasons for request in replay.of(nonce)]
    requests = replay.of(nonce)
    assert [reason for request in requests for reason in request.reasons] == []
    assert "second-model" in {request.model for request in requests}
