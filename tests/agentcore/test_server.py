"""What the server refuses, records and does wrong when it is told to."""

import time

import pytest
from botocore.exceptions import ConnectionClosedError, ReadTimeoutError

from tests.agentcore.boto import FACTS, connect, listed, post, recalled, refusal, say
from tests.agentcore.faults import EVERY
from tests.agentcore.server import AgentCore


def test_a_token_is_accepted_once(agentcore: AgentCore) -> None:
    memory, client = agentcore.add_memory("notes", FACTS), connect(agentcore)
    first = say(client, memory, clientToken="t")
    assert say(client, memory, clientToken="t") == first
    assert say(client, memory, "something else", clientToken="t") == first
    assert len(listed(client, memory)["events"]) == 1
    assert agentcore.service.counts["repeated"] == 1
    assert agentcore.service.counts["repeated with other content"] == 1
    assert agentcore.service.texts(memory) == ["I like tea"]


def test_values_that_break_the_model_are_refused_and_recorded(agentcore: AgentCore) -> None:
    memory, client = agentcore.add_memory("notes"), connect(agentcore)
    status, code, error = refusal(say, client, memory, actorId="alice@example.com")
    assert (status, code) == (400, "ValidationException")
    assert (error["reason"], error["fieldList"][0]["name"]) == ("FieldValidationFailed", "actorId")
    assert refusal(say, client, memory, eventTimestamp=None)[0] == 400
    assert refusal(say, client, memory, payload=[{"conversational": {"role": "USER"}}])[0] == 400
    assert refusal(say, client, memory, metadata={"k": {"stringValue": "{}"}})[0] == 400
    retrieve = {"memoryId": memory, "searchCriteria": {"searchQuery": "tea", "topK": 101}}
    ask = client.retrieve_memory_records
    assert refusal(ask, **retrieve, namespace="/f")[2]["fieldList"][0]["name"] == (
        "searchCriteria.topK"
    )
    assert refusal(recalled, client, memory, namespace="/users/{actorId}")[0] == 400
    assert refusal(recalled, client, memory, namespace="/f", namespacePath="/f")[0] == 400
    assert len(agentcore.take_violations()) == 7
    assert refusal(say, client, "other-0123456789")[:2] == (404, "ResourceNotFoundException")


def test_values_unknown_to_the_model_are_recorded(agentcore: AgentCore) -> None:
    memory = agentcore.add_memory("notes")
    payload = [{"blob": 1, "unheard": 2}]
    event = {"actorId": "alice", "eventTimestamp": 1, "payload": payload, "more": 3}
    assert post(agentcore, f"/memories/{memory}/events", event) == 201
    assert post(agentcore, f"/memories/{memory}/events", {**event, "eventTimestamp": "now"}) == 400
    assert post(agentcore, f"/memories/{memory}/events", event, signature="") == 403
    assert post(agentcore, f"/memories/{memory}/forget", {}) == 404
    violations = agentcore.take_violations()
    assert violations[:2] == [
        "CreateEvent: unknown field more",
        "CreateEvent: unknown field payload[0].unheard",
    ]
    assert "timestamp in seconds" in violations[4]
    assert violations[-1] == f"no operation of the memory service: POST /memories/{memory}/forget"


@pytest.mark.slow
def test_retries_absorb_throttles_and_a_lost_reply_is_one_event(agentcore: AgentCore) -> None:
    memory, client = agentcore.add_memory("notes"), connect(agentcore, attempts=3)
    agentcore.faults.throttle("CreateEvent", times=2)
    say(client, memory)
    agentcore.faults.lose_reply("CreateEvent")
    say(client, memory, "again")
    assert [call.status for call in agentcore.calls.of("CreateEvent")] == [429, 429, 201, 0, 201]
    assert len(listed(client, memory)["events"]) == 2
    assert agentcore.service.counts["repeated"] == 1


def test_everything_that_can_go_wrong(agentcore: AgentCore) -> None:
    memory = agentcore.add_memory("notes")
    client = connect(agentcore, read_timeout=0.2)
    faults = agentcore.faults
    faults.deny(EVERY, times=1, after=1)
    assert listed(client, memory)["events"] == []
    assert refusal(listed, client, memory)[:2] == (403, "AccessDeniedException")
    faults.error("ListEvents", "ServiceException")
    assert refusal(listed, client, memory)[:2] == (500, "ServiceException")
    faults.fail("ListEvents", 503)
    assert refusal(listed, client, memory)[0] == 503
    faults.cut("CreateEvent", where=lambda given: given["actorId"] == "alice")
    say(client, memory, actorId="bob")
    with pytest.raises(ConnectionClosedError):
        say(client, memory)
    hanging = faults.hang("RetrieveMemoryRecords")
    with pytest.raises(ReadTimeoutError):
        recalled(client, memory)
    hanging.wait_reached()
    held = faults.hold("CreateEvent")
    with pytest.raises(ReadTimeoutError):
        say(client, memory, "late")
    assert agentcore.service.said(memory, "alice") == []
    held.release()
    begin = time.monotonic()
    while not agentcore.service.said(memory, "alice") and time.monotonic() < begin + 5:
        time.sleep(0.005)
    assert len(agentcore.service.said(memory, "alice")) == 1
    faults.slow("ListEvents", seconds=0.05)
    assert len(listed(client, memory)["events"]) == 1
    assert agentcore.calls.wait_for("ListEvents", 5)[-1].seconds >= 0.05


def test_a_server_that_was_stopped_goes_on_where_it_was(agentcore: AgentCore) -> None:
    memory, client = agentcore.add_memory("notes"), connect(agentcore)
    say(client, memory)
    agentcore.stop()
    with pytest.raises(Exception, match=r"Could not connect|Connection was closed"):
        say(client, memory)
    agentcore.start()
    assert len(listed(client, memory)["events"]) == 1


def test_a_reply_that_the_model_does_not_allow_is_this_servers_error(agentcore: AgentCore) -> None:
    memory, client = agentcore.add_memory("notes"), connect(agentcore)
    agentcore.remember(memory, "/f", 17_000 * "x")
    assert refusal(recalled, client, memory)[0] == 500
    assert "less than or equal to 16000" in agentcore.take_violations()[0]
