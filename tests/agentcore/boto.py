"""AWS's own client for Python at the server, and what most tests ask it."""

from datetime import UTC, datetime
from typing import Any

import boto3
import httpx
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from tests.agentcore.server import AgentCore

FACTS = "semantic:/users/{actorId}/facts"
START = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
SIGNATURE = "AWS4-HMAC-SHA256 Credential=k/1/r/bedrock-agentcore/aws4_request, Signature=0"
SESSION = boto3.Session("local", "local", region_name="us-east-1")


def connect(server: AgentCore, plane: str = "", attempts: int = 1, read_timeout: float = 10) -> Any:
    config = Config(
        retries={"total_max_attempts": attempts, "mode": "standard"},
        read_timeout=read_timeout,
        parameter_validation=False,
    )
    name = f"bedrock-agentcore{plane}"
    return SESSION.client(name, endpoint_url=server.url, config=config)


def say(
    client: Any, memory: str, text: str = "I like tea", at: datetime = START, **more: Any
) -> Any:
    given = {"memoryId": memory, "actorId": "alice", "sessionId": "s1", "eventTimestamp": at}
    payload = [{"conversational": {"role": "USER", "content": {"text": text}}}]
    return client.create_event(**{**given, "payload": payload, **more})["event"]


def recalled(client: Any, memory: str, query: str = "tea", **where: Any) -> list[str]:
    where = where or {"namespacePath": "/"}
    found = client.retrieve_memory_records(
        memoryId=memory, searchCriteria={"searchQuery": query}, **where
    )
    return [record["content"]["text"] for record in found["memoryRecordSummaries"]]


def listed(client: Any, memory: str, **more: Any) -> Any:
    return client.list_events(memoryId=memory, actorId="alice", sessionId="s1", **more)


def post(server: AgentCore, path: str, body: Any, signature: str = SIGNATURE) -> int:
    """The status of a request that AWS's clients do not make."""
    return httpx.post(
        server.url + path, json=body, headers={"Authorization": signature}
    ).status_code


def refusal(call: Any, *given: Any, **more: Any) -> Any:
    with pytest.raises(ClientError) as caught:
        call(*given, **more)
    error = caught.value.response
    return error["ResponseMetadata"]["HTTPStatusCode"], error["Error"]["Code"], error
