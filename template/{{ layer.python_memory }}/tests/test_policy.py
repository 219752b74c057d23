"""What the agent needs on AWS: the policy of its role, and the memory as it has to be."""

import json
from pathlib import Path
from typing import Any

import pytest

from app.memory.agentcore import AgentCore
from app.memory.options import Options
from app.memory.policy import check_policy, policy_of
from app.memory.project import load_project
from app.memory.resource_check import check_resources

MEMORY = "arn:aws:bedrock-agentcore:eu-west-1:${AWS_ACCOUNT_ID}:memory/${SECRETS_NOTES}"
BUCKET = "arn:aws:s3:::${BUCKET}"
SECRET = "arn:aws:secretsmanager:${AWS_REGION}:${AWS_ACCOUNT_ID}:secret:secrets/notes-??????"
CONFIG: dict[str, Any] = {"/users/{actorId}/facts": {}, "users/{actorId}/*": {}}
NOTES: dict[str, Any] = {"type": "agentcore_memory", "memory_id_secret": "secrets/notes"}
NOTES |= {"region": "eu-west-1", "retrieval_config": CONFIG}
S3 = {"type": "s3", "bucket_secret": "env:BUCKET", "region": "eu-west-1", "prefix": "p"}
COPY: dict[str, Any] = {"type": "lambda", "provider": "aws", "function_id": "copy"}
COPY |= {"credentials": {"scheme": "iam-role"}}
BACKENDS = {
    "notes": ("user", NOTES),
    "our-sessions": ("session", S3 | {"ttl_days": 7}),
    "copies": ("project", {"type": "custom", "transport": COPY}),
}
EXPECTED = [
    ("RecallNotes", ["bedrock-agentcore:RetrieveMemoryRecords"], [MEMORY]),
    ("RecallBelowNotes", ["bedrock-agentcore:RetrieveMemoryRecords"], [MEMORY]),
    ("RecordNotes", ["bedrock-agentcore:CreateEvent"], [MEMORY]),
    (
        "ObjectsOurSessions",
        ["s3:GetObject", "s3:PutObject", "s3:DeleteObject"],
        [f"{BUCKET}/p/*"],
    ),
    (
        "BucketOurSessions",
        ["s3:ListBucket", "s3:GetLifecycleConfiguration", "s3:PutLifecycleConfiguration"],
        [BUCKET],
    ),
    (
        "InvokeCopies",
        ["lambda:InvokeFunction"],
        ["arn:aws:lambda:${AWS_REGION}:${AWS_ACCOUNT_ID}:function:copy"],
    ),
    ("Secrets", ["secretsmanager:GetSecretValue"], [SECRET]),
]


def write(folder: Path, reads: list[str], writes: list[str], **notes: Any) -> None:
    """A project whose agent has these lists; `notes` changes the backend of that collection."""
    lists = {"mode": "user", "read_collections": reads, "write_collections": writes}
    files: dict[str, Any] = {"agents/a.agent": {"agent_id": "a", "memory": lists}}
    for id, (lifetime, backend) in BACKENDS.items():
        backend = backend | (notes if id == "notes" else {})
        files[f"collections/{id}.collection"] = {
            "spec_version": "1.2",
            "collection_id": id,
            "version": "1.0.0",
            "status": "active",
            "meta": {"name": "N", "description": "One. Two.", "owner": "o"},
            "scope": {"lifetime": lifetime},
            "backend": {key: value for key, value in backend.items() if value is not None},
            "writeback": {"enabled": True},
        }
    for name, value in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / f"{name}.md").write_text(f"---\n{json.dumps(value)}\n---\n")


def test_the_policy_holds_what_the_collections_need(tmp_path: Path) -> None:
    write(tmp_path, [*BACKENDS], [*BACKENDS])
    statements = policy_of(load_project(tmp_path))["Statement"]
    assert [(it["Sid"], it["Action"], it["Resource"]) for it in statements] == EXPECTED
    assert [it["Condition"]["StringLike"] for it in statements[:2]] == [
        {"bedrock-agentcore:namespace": ["/users/*/facts/"]},
        {"bedrock-agentcore:namespacePath": ["/users/*/"]},
    ]


def test_the_policy_holds_nothing_for_what_is_not_used(tmp_path: Path) -> None:
    write(tmp_path, ["our-sessions", "copies"], [])
    statements = policy_of(load_project(tmp_path))["Statement"]
    assert [it["Action"] for it in statements] == [["s3:GetObject"], ["s3:ListBucket"]]


def test_a_saved_policy_may_be_filled_in_and_not_otherwise_changed(tmp_path: Path) -> None:
    write(tmp_path, ["notes"], ["notes"])
    saved = tmp_path / "iam/a.policy.json"
    assert check_policy(tmp_path, Options()) == []
    text = json.dumps(policy_of(load_project(tmp_path))).replace("${AWS_ACCOUNT_ID}", "1" * 12)
    saved.parent.mkdir()
    saved.write_text(text)
    assert check_policy(tmp_path, Options()) == []
    for other in (text.replace("CreateEvent", "*"), "[]", "{"):
        saved.write_text(other)
        assert [it["id"] for it in check_policy(tmp_path, Options())] == ["AML-W248"]


@pytest.mark.parametrize(
    ("change", "config", "expected"),
    [
        ({}, CONFIG, []),
        ({"status": "CREATING"}, CONFIG, ["AML-W243"]),
        ({"strategies": [{"strategyId": "own"}]}, {"/other": {}}, []),
        ({}, {"/users/{actorId}": {}, "/projects/{projectId}": {}}, ["AML-W244", "AML-W245"]),
        ({}, {"/context/{actorId}": {}}, ["AML-W244"]),
        ({}, {"/by/*": {}, "/by/s-1": {}}, []),
        ({}, None, []),
        ({"strategies": [{"strategyId": "s", "namespaces": ["/all"]}]}, None, ["AML-W246"]),
    ],
)
async def test_the_memory_is_compared_with_the_collection(
    tmp_path: Path, monkeypatch: Any, change: Any, config: Any, expected: list[str]
) -> None:
    templates = ["/users/{actorId}/facts/", "/by/{memoryStrategyId}/", "/context/{sessionId}"]
    strategies = [{"strategyId": "s-1", "namespaceTemplates": [it]} for it in templates]
    resource: dict[str, Any] = {"status": "ACTIVE", "strategies": strategies} | change

    async def describe(_: AgentCore) -> dict[str, Any]:
        return resource

    monkeypatch.setattr(AgentCore, "describe", describe)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "SECRETS_NOTES"):
        monkeypatch.setenv(name, "notes-0123456789")
    write(tmp_path, ["notes"], [], retrieval_config=config)
    found = await check_resources(tmp_path, Options(project_id="apollo"))
    assert [it["id"] for it in found] == expected
    written = "/users/{actorId}/facts/, /by/s-1/, /context/{sessionId}"
    told = [it["message"] for it in found if it["id"] == "AML-W244"]
    assert all(it.endswith(f"they write to {written}.") for it in told)


async def test_what_was_not_verified_is_told(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("app.memory.resource_check.has_aws", lambda: False)
    write(tmp_path, ["notes"], [])
    (one,) = await check_resources(tmp_path, Options())
    assert one["id"] == "AML-W247" and "no AWS credentials" in one["message"]
