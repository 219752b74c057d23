"""The collections of this project, and the findings of `check` in broken ones."""

import os
from pathlib import Path
from typing import Any, get_args

import pytest

from app.capabilities import Settings
from app.collections.backends import OtherConfig
from app.collections.check import check_project, load_project
from app.collections.fields import SecretRef
from app.collections.secrets import SecretError, Secrets, unset_variables

PROJECT = Path(__file__).parents[1]
BACKENDS = {
    "valkey": "endpoint_secret: env:SESSIONS, ttl_seconds: 86400",
    "s3": "bucket_secret: env:SESSIONS, region: eu-west-1, ttl_days: 7",
    "custom": "transport: {type: rest-api, base_url: env:SESSIONS, credentials: {scheme: none}}",
    "agentcore_memory": "memory_id_secret: env:SESSIONS, region: eu-west-1, "
    'retrieval_config: {"/facts/{actorId}": {}}',
    "knowledge_base": "knowledge_base_id_secret: env:SESSIONS, region: eu-west-1, "
    'data_source_id_secret: env:SESSIONS, retrieval_config: {"/facts/{actorId}": {}}',
}
OTHERS = get_args(OtherConfig.model_fields["type"].annotation)
FILES = {
    "collections/sessions.collection.md": """---
spec_version: "1.2"
collection_id: "sessions"
version: "1.0.0"
status: "active"
meta: {name: "Sessions", description: "One. Two.", owner: "me", last_updated: "2026-04-01"}
scope: {lifetime: "LIFETIME"}
writeback: {enabled: true}
backend: {type: TYPE}
---
""",
    "agents/helper.agent.md": """---
agent_id: "helper"
memory:
  mode: "user"
  read_collections: ["sessions"]
  write_collections: ["sessions"]
---
""",
    "iam/helper.iam.md": '---\nagent_id: "helper"\n'
    'collections: [{ref: "sessions", access: "read-write"}]\n---\n',
}


@pytest.fixture(params=[type for type in BACKENDS if type not in OTHERS])
def backend(request: Any) -> Any:
    return request.param


def check(folder: Path, backend: str, old: str = "", new: str = "") -> list[str]:
    """Check the project of FILES, in each of which the first `old` is replaced."""
    lifetime = "session" if backend in ("valkey", "s3") else "user"
    for path, text in FILES.items():
        text = text.replace("LIFETIME", lifetime).replace("TYPE", f"{backend}, {BACKENDS[backend]}")
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(text.replace(old, new, 1), "utf-8")
    findings = check_project(folder, None)
    return [f"{found['id']} {found['file'][:5]}:{found['line']}" for found in findings]


def test_the_collections_of_this_project_have_no_errors() -> None:
    found = check_project(PROJECT, os.environ.get("AGENT_ID"))
    assert [finding for finding in found if finding["severity"] == "error"] == []


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ('"1.0.0"', "1.0", ["AML-E302 colle:4"]),
        ('"1.0.0"', "&a 5", ["AML-E007 colle:4"]),
        ("meta: ", "meta:\t", ["AML-E0D1 colle:6"]),
        ('version: "1.0.0"\n', "", ["AML-E301 colle:1"]),
        ("scope", "color: 1\nscope", ["AML-E303 colle:7"]),
        ('"active"', '"disabled"', ["AML-E102 agent:5", "AML-E102 agent:6", "AML-E102 iam/h:3"]),
        ("enabled: true", "enabled: false", ["AML-E107 agent:6", "AML-E108 iam/h:3"]),
        ('"read-write"', '"read"', ["AML-E106 agent:6"]),
    ],
)
def test_a_finding_names_the_line(
    old: str, new: str, found: list[str], backend: str, tmp_path: Path
) -> None:
    assert check(tmp_path, backend, old, new) == found


@pytest.mark.parametrize("other", OTHERS)
def test_a_used_backend_needs_its_code(other: str, tmp_path: Path) -> None:
    assert check(tmp_path, other) == ["AML-E10D colle:9"]
    (finding,) = check_project(tmp_path, "helper")
    name = other.removesuffix("_memory").replace("_", "-")
    assert name in finding["message"] and " -x collections/" in finding["message"]


async def test_a_secret_is_read(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert check(tmp_path, backend) == ["AML-W240 colle:9"]
    collection, settings = load_project(tmp_path, None).used()[0], Settings()
    ref, *_ = collection.backend.secret_refs()
    assert {*unset_variables(settings, collection)} == {"SESSIONS"}
    monkeypatch.setenv("SESSIONS", '{"url": "valkey://h"}')
    assert unset_variables(settings, collection) == []
    is_memory = backend in ("agentcore_memory", "knowledge_base")  # an id may be any text
    assert check(tmp_path, backend) == ([] if is_memory else ["AML-E113 colle:9"])
    secrets = Secrets(settings)
    assert await secrets.get(SecretRef("sessions", key="url")) == "valkey://h"
    with pytest.raises(SecretError, match="variable SESSIONS") as caught:
        await secrets.get(SecretRef(f"{ref.reference}#port"))
    assert "valkey://" not in str(caught.value)
