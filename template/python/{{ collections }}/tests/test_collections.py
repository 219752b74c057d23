"""The collections of this project, and the findings of `check` in broken ones."""

import os
from pathlib import Path
from typing import get_args

import pytest

from app.collections.backends import OtherConfig
from app.collections.check import check_project, load_project
from app.collections.fields import SecretRef
from app.collections.secrets import SecretError, Secrets, unset_variables
from app.settings import Settings

PROJECT = Path(__file__).parents[1]
BACKENDS = {
    "valkey": 'endpoint_secret: "env:SESSIONS", ttl_seconds: 86400',
    "s3": 'bucket_secret: "env:SESSIONS", region: "eu-west-1", ttl_days: 7',
    "custom": 'transport: {type: rest-api, base_url: "env:SESSIONS", credentials: {scheme: none}}',
    "agentcore_memory": 'memory_id_secret: "env:SESSIONS", region: "eu-west-1", '
    'retrieval_config: {"/facts/{actorId}": {}}',
}
OTHERS = get_args(OtherConfig.model_fields["type"].annotation)
FILES = {
    "collections/sessions.collection.md": """---
spec_version: "1.2"
collection_id: "sessions"
version: "1.0.0"
status: "active"
meta:
  name: "Sessions"
  description: "Stores the completed turns. Other instances continue from them."
  owner: "platform"
  last_updated: "2026-04-01"
scope: {lifetime: "LIFETIME"}
writeback: {enabled: true}
backend:
  {type: "TYPE", FIELDS}
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
    "iam/helper.iam.md": """---
agent_id: "helper"
collections: [{ref: "sessions", access: "read-write"}]
---
""",
}


@pytest.fixture(autouse=True)
def clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("AWS_", "SESSIONS"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture(params=[type for type in BACKENDS if type not in OTHERS])
def backend(request: pytest.FixtureRequest) -> str:
    """A type of backend that this project has code for."""
    return str(request.param)


def check(folder: Path, backend: str, old: str = "", new: str = "") -> list[str]:
    """Check the project of FILES, in each of which the first `old` is replaced."""
    lifetime = "session" if backend in ("valkey", "s3") else "user"
    for path, text in FILES.items():
        text = text.replace("LIFETIME", lifetime).replace("TYPE", backend)
        text = text.replace("FIELDS", BACKENDS[backend]).replace(old, new, 1)
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(text, "utf-8")
    found = check_project(folder, None)
    return [f"{finding['id']} {finding['file'][:5]}:{finding['line']}" for finding in found]


def test_the_collections_of_this_project_have_no_errors() -> None:
    found = check_project(PROJECT, os.environ.get("AGENT_ID"))
    assert [finding for finding in found if finding["severity"] == "error"] == []


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ('"1.0.0"', "1.0", ["AML-E302 colle:4"]),
        ('"1.0.0"', "&a 5", ["AML-E007 colle:4"]),
        ("  owner", "\towner", ["AML-E0D1 colle:9"]),
        ('version: "1.0.0"\n', "", ["AML-E301 colle:1"]),
        ("scope", "color: 1\nscope", ["AML-E303 colle:11"]),
        ('"active"', '"disabled"', ["AML-E102 agent:5", "AML-E102 agent:6", "AML-E102 iam/h:3"]),
        ("enabled: true", "enabled: false", ["AML-E107 agent:6", "AML-E108 iam/h:3"]),
        ('"read-write"', '"read"', ["AML-E106 agent:6"]),
        ("env:SESSIONS", "env:0", ["AML-E302 colle:14"]),
    ],
)
def test_a_finding_names_the_line(
    old: str, new: str, found: list[str], backend: str, tmp_path: Path
) -> None:
    assert check(tmp_path, backend, old, new) == found


def test_sessions_are_read_too(backend: str, tmp_path: Path) -> None:
    found = check(tmp_path, backend, '  read_collections: ["sessions"]\n')
    stores = load_project(tmp_path, None).session_collections()
    assert found == (["AML-E10C agent:5"] if stores else ["AML-W240 colle:14"])


@pytest.mark.parametrize("other", OTHERS)
def test_a_used_backend_needs_its_code(other: str, tmp_path: Path) -> None:
    assert check(tmp_path, other) == ["AML-E10D colle:14"]
    (finding,) = check_project(tmp_path, "helper")
    answer = "long_term_memory=agentcore" if "memory" in other else f"session_store={other}"
    assert f"-d {answer} -x collections/" in finding["message"]


def test_the_variable_of_a_secret_is_set(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert check(tmp_path, backend) == ["AML-W240 colle:14"]
    collection, settings = load_project(tmp_path, None).used()[0], Settings()
    assert unset_variables(settings, collection) == ["SESSIONS"]
    monkeypatch.setenv("SESSIONS", "a b")
    assert unset_variables(settings, collection) == []
    is_address = backend != "agentcore_memory"
    assert check(tmp_path, backend) == ["AML-E113 colle:14"] * is_address


async def test_a_secret_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRETS_SESSIONS", '{"url": "valkey://h"}')
    secrets = Secrets(Settings())
    assert await secrets.get(SecretRef("secrets/sessions", key="url")) == "valkey://h"
    with pytest.raises(SecretError, match="SECRETS_SESSIONS") as caught:
        await secrets.get(SecretRef("secrets/sessions#port"))
    assert "valkey://" not in str(caught.value)
