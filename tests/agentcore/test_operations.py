"""What the operations answer to AWS's own client for Python."""

import math
from datetime import timedelta

from tests.agentcore.boto import FACTS, START, connect, listed, recalled, refusal, say
from tests.agentcore.server import AgentCore


def test_a_memory_is_created_changed_and_deleted(agentcore: AgentCore) -> None:
    control = connect(agentcore, "-control")
    strategy = {"name": "facts", "namespaceTemplates": ["/c/{project}/{actorId}"]}
    created = control.create_memory(
        name="notes",
        eventExpiryDuration=30,
        memoryStrategies=[{"semanticMemoryStrategy": strategy}],
        namespaceKeys=[{"key": "project", "validation": {"allowedValues": ["apollo"]}}],
    )
    identity = created["memory"]["id"]
    assert (created["ResponseMetadata"]["HTTPStatusCode"], identity[:6]) == (202, "notes-")
    memory = control.get_memory(memoryId=identity)["memory"]
    assert memory["status"] == "ACTIVE"
    assert memory["strategies"][0]["namespaceTemplates"] == ["/c/{project}/{actorId}"]
    changes = {"addMemoryStrategies": [{"summaryMemoryStrategy": {"name": "sums"}}]}
    changed = control.update_memory(memoryId=identity, memoryStrategies=changes)["memory"]
    assert [one["type"] for one in changed["strategies"]] == ["SEMANTIC", "SUMMARIZATION"]
    pages = control.get_paginator("list_memories").paginate()
    assert [one["id"] for page in pages for one in page["memories"]] == [identity]
    assert control.delete_memory(memoryId=identity)["status"] == "DELETING"
    assert refusal(control.get_memory, memoryId=identity)[:2] == (404, "ResourceNotFoundException")


def test_events_come_newest_first_in_pages_of_20(agentcore: AgentCore) -> None:
    memory, client = agentcore.add_memory("notes"), connect(agentcore)
    sent = [say(client, memory, f"text {n}", START + timedelta(milliseconds=n)) for n in range(45)]
    assert sent[0]["eventTimestamp"] == START
    assert sent[0]["eventId"].startswith(f"{START.timestamp() * 1000:019.0f}#")
    first = listed(client, memory)
    assert [event["eventId"] for event in first["events"]] == [
        event["eventId"] for event in reversed(sent[25:])
    ]
    pages = client.get_paginator("list_events").paginate(
        memoryId=memory, actorId="alice", sessionId="s1", PaginationConfig={"PageSize": 7}
    )
    texts = [
        event["payload"][0]["conversational"]["content"]["text"]
        for page in pages
        for event in page["events"]
    ]
    assert texts == [f"text {n}" for n in reversed(range(45))]
    # A token is good for the list that it came with.
    token = first["nextToken"]
    assert refusal(listed, client, memory, nextToken=token, includePayloads=False)[0] == 400
    assert len(agentcore.take_violations()) == 1


def test_events_without_payloads_and_by_metadata_after_the_page(agentcore: AgentCore) -> None:
    memory, client = agentcore.add_memory("notes"), connect(agentcore)
    for n in range(4):
        metadata = {"kind": {"stringValue": "odd" if n % 2 else "even"}}
        say(client, memory, at=START + timedelta(seconds=n), metadata=metadata)
    right = {"metadataValue": {"stringValue": "even"}}
    one = {"left": {"metadataKey": "kind"}, "operator": "EQUALS_TO", "right": right}
    found = listed(client, memory, filter={"eventMetadata": [one]}, maxResults=1)
    assert found["events"] == []
    assert found["nextToken"]
    assert "payload" not in listed(client, memory, includePayloads=False)["events"][0]


def test_events_sessions_and_actors_are_found_and_go(agentcore: AgentCore) -> None:
    memory, client = agentcore.add_memory("notes"), connect(agentcore)
    actor = "team/alice:dev"
    arn = f"arn:aws:bedrock-agentcore:us-east-1:123456789012:memory/{memory}"
    event = say(client, arn, actorId=actor, payload=[{"blob": {"any": [1]}}, {"blob": "text"}])
    where = {"memoryId": memory, "actorId": actor, "sessionId": "s1"}
    one = {**where, "eventId": event["eventId"]}
    assert client.get_event(**one)["event"]["payload"] == [{"blob": {"any": [1]}}, {"blob": "text"}]
    assert client.list_actors(memoryId=memory)["actorSummaries"] == [{"actorId": actor}]
    client.delete_event(**one)
    assert refusal(client.get_event, **one)[1] == "ResourceNotFoundException"
    sessions = {"memoryId": memory, "actorId": actor}
    assert len(client.list_sessions(**sessions)["sessionSummaries"]) == 1
    filled = client.list_sessions(**sessions, filter={"eventFilter": "HAS_EVENTS"})
    assert filled["sessionSummaries"] == []
    agentcore.service.clock.advance(90_000)
    assert client.list_sessions(**sessions)["sessionSummaries"] == []


def test_a_namespace_is_exact_and_a_path_ends_at_a_slash(agentcore: AgentCore) -> None:
    memory, client = agentcore.add_memory("notes"), connect(agentcore)
    for namespace in ("/f/alice", "/f/alice/deep/", "/f/alice2", "g"):
        agentcore.remember(memory, namespace, f"tea of {namespace}")
    assert recalled(client, memory, namespace="/f/alice/") == ["tea of /f/alice"]
    assert recalled(client, memory, namespace="/f") == []
    assert sorted(recalled(client, memory, namespacePath="/f/alice")) == [
        "tea of /f/alice",
        "tea of /f/alice/deep/",
    ]
    pages = client.get_paginator("list_memory_records").paginate(
        memoryId=memory, namespacePath="/", PaginationConfig={"PageSize": 1}
    )
    assert [page["memoryRecordSummaries"][0]["namespaces"] for page in pages] == [
        ["/g/"],
        ["/f/alice2/"],
        ["/f/alice/deep/"],
        ["/f/alice/"],
    ]


def test_results_are_the_best_first_with_scores(agentcore: AgentCore) -> None:
    memory, client = agentcore.add_memory("notes"), connect(agentcore)
    agentcore.remember(memory, "/f", "I drive a car", "my tea is sencha", "Green teas are my tea")
    found = client.retrieve_memory_records(
        memoryId=memory, namespace="/f", searchCriteria={"searchQuery": "Which green tea?"}
    )["memoryRecordSummaries"]
    assert [(one["content"]["text"], round(one["score"], 2)) for one in found] == [
        ("Green teas are my tea", 1.0),
        ("my tea is sencha", 0.5),
        ("I drive a car", 0.0),
    ]
    agentcore.remember(memory, "/many", *(f"tea {n}" for n in range(130)))
    criteria = {"searchQuery": "tea", "topK": 100}
    pages = client.get_paginator("retrieve_memory_records").paginate(
        memoryId=memory, namespace="/many", searchCriteria=criteria
    )
    assert [len(page["memoryRecordSummaries"]) for page in pages] == [20] * 5


def test_records_are_changed_and_deleted_in_batches(agentcore: AgentCore) -> None:
    memory, client = agentcore.add_memory("notes"), connect(agentcore)
    row = {"requestIdentifier": "1", "namespaces": ["/f"], "content": {"text": "tea"}}
    metadata = {"year": {"numberValue": 2020.0}}
    created = client.batch_create_memory_records(
        memoryId=memory, records=[{**row, "timestamp": START, "metadata": metadata}]
    )
    (made,) = created["successfulRecords"]
    identity = made["memoryRecordId"]
    later = {"left": {"metadataKey": "year"}, "operator": "GREATER_THAN"}
    later["right"] = {"metadataValue": {"numberValue": 2019}}
    where = {"memoryId": memory, "namespace": "/f", "metadataFilters": [later]}
    assert len(client.list_memory_records(**where)["memoryRecordSummaries"]) == 1
    change = {"memoryRecordId": identity, "timestamp": START, "content": {"text": "coffee"}}
    client.batch_update_memory_records(
        memoryId=memory,
        records=[change],
        recordExpirySpecification={"recordExpiryDurationDays": 31},
    )
    record = client.get_memory_record(memoryId=memory, memoryRecordId=identity)["memoryRecord"]
    assert record["content"] == {"text": "coffee"}
    assert record["expiresAt"] > record["createdAt"] + timedelta(days=30)
    unknown = {"memoryRecordId": "mem-" + 36 * "0"}
    deleted = client.batch_delete_memory_records(
        memoryId=memory, records=[{"memoryRecordId": identity}, unknown]
    )
    assert [len(deleted[key]) for key in ("successfulRecords", "failedRecords")] == [1, 1]
    assert refusal(client.delete_memory_record, memoryId=memory, **unknown)[0] == 404


def test_extraction_takes_its_time_and_its_variables(agentcore: AgentCore) -> None:
    strategies = (FACTS, "user_preference:/c/{project}/{actorId}", "summary")
    memory = agentcore.add_memory("notes", *strategies, keys=("project",))
    client = connect(agentcore)
    agentcore.service.extraction_delay = 60
    own = {"namespaceVariables": {"project": "apollo"}}
    say(client, memory, extractionConfig=own)
    assert recalled(client, memory) == []
    agentcore.service.clock.advance(61)
    assert recalled(client, memory, namespace="/c/apollo/alice") == ["I like tea"]
    assert len(recalled(client, memory)) == 3
    agentcore.service.extraction_delay = math.inf
    say(client, memory, "My tea is sencha")  # without its project: no record, no error
    assert agentcore.service.counts["unresolved"] == 1
    agentcore.settle()
    assert len(recalled(client, memory, "sencha", namespace="/c/apollo/alice")) == 1
    assert len(recalled(client, memory, "sencha", namespace="/users/alice/facts")) == 2
    say(client, memory, "Do not keep this", extractionMode="SKIP")
    say(client, memory)  # known already
    wrapped = '{"message": {"role": "user", "content": [{"text": "I ski"}]}, "message_id": 0}'
    say(client, memory, wrapped)
    say(client, memory, payload=[{"conversational": {"role": "TOOL", "content": {"text": "4"}}}])
    assert agentcore.service.texts(memory, "/users") == ["I like tea", "My tea is sencha", "I ski"]
