"""The collections of this project, the findings of `check`, and secrets."""

import os
from pathlib import Path
from typing import get_args

import pytest

from my_agent.harness.collections.backends import OtherConfig
from my_agent.harness.collections.check import (
    check_project,
    load_project,
)
from my_agent.harness.collections.fields import SecretRef
from my_agent.harness.collections.secrets import (
    SecretError,
    Secrets,
    unset_variables,
)
from my_agent.harness.enabled import Settings

PROJECT = Path(__file__).parents[2]

# The fields of each backend type. Other template answers add the types that this project lacks.
FIELDS = {
    "valkey": "endpoint_secret: env:SESSIONS, ttl_seconds: 86400",
    "s3": "bucket_secret: env:SESSIONS, region: eu-west-1, ttl_days: 7",
    "custom": "transport: {type: rest-api, base_url: env:SESSIONS, credentials: {scheme: none}}",
    "agentcore_memory": "memory_id_secret: env:SESSIONS, region: eu-west-1, "
    'retrieval_config: {"/facts/{actorId}": {}}',
    "knowledge_base": "knowledge_base_id_secret: env:SESSIONS, region: eu-west-1, "
    'data_source_id_secret: env:SESSIONS, retrieval_config: {"/facts/{actorId}": {}}',
}
UNUSABLE = get_args(OtherConfig.model_fields["type"].annotation)
USABLE = [type for type in FIELDS if type not in UNUSABLE]
MEMORIES = ("agentcore_memory", "knowledge_base")

COLLECTION_FILE = "collections/sessions.collection.md"
COLLECTION = """---
spec_version: "1.2"
collection_id: "sessions"
version: "1.0.0"
status: "active"
meta: {name: "Sessions", description: "One. Two.", owner: "me", last_updated: "2026-04-01"}
scope: {lifetime: "LIFETIME"}
writeback: {enabled: true}
backend: {type: TYPE, FIELDS}
---
"""
AGENT_FILE = "agents/helper.agent.md"
AGENT = """---
agent_id: "helper"
memory:
  mode: "user"
  read_collections: ["sessions"]
  write_collections: ["sessions"]
---
"""
GRANTS_FILE = "iam/helper.iam.md"
GRANTS = """---
agent_id: "helper"
collections: [{ref: "sessions", access: "read-write"}]
---
"""


class Declarations:
    """The files of a project with one collection and one agent that uses it."""

    def __init__(self, folder: Path, type: str) -> None:
        self.folder = folder
        lifetime = "session" if type in ("valkey", "s3") else "user"
        fields = {"LIFETIME": lifetime, "TYPE": type, "FIELDS": FIELDS[type]}
        collection = COLLECTION
        for name, value in fields.items():
            collection = collection.replace(name, value)
        self.write(COLLECTION_FILE, collection)
        self.write(AGENT_FILE, AGENT)
        self.write(GRANTS_FILE, GRANTS)

    def write(self, name: str, text: str) -> None:
        (self.folder / name).parent.mkdir(exist_ok=True)
        (self.folder / name).write_text(text, "utf-8")

    def replace(self, name: str, old: str, new: str) -> None:
        """Replace the first `old` in the file of this name."""
        text = (self.folder / name).read_text("utf-8")
        assert old in text
        self.write(name, text.replace(old, new, 1))

    def check(self) -> list[str]:
        """Return each finding as its id, file and line."""
        findings = check_project(self.folder, None)
        return [f"{it['id']} {it['file']}:{it['line']}" for it in findings]


@pytest.fixture(params=USABLE)
def declarations(request: pytest.FixtureRequest, tmp_path: Path) -> Declarations:
    """Return declarations for each backend type that this project supports."""
    return Declarations(tmp_path, request.param)


def test_the_collections_of_this_project_have_no_errors() -> None:
    findings = check_project(PROJECT, os.environ.get("AGENT_ID"))
    assert [finding for finding in findings if finding["severity"] == "error"] == []


def test_a_version_is_a_text(declarations: Declarations) -> None:
    declarations.replace(COLLECTION_FILE, '"1.0.0"', "1.0")
    assert declarations.check() == [f"AML-E302 {COLLECTION_FILE}:4"]


def test_an_anchor_is_an_error(declarations: Declarations) -> None:
    declarations.replace(COLLECTION_FILE, '"1.0.0"', "&a 5")
    assert declarations.check() == [f"AML-E007 {COLLECTION_FILE}:4"]


def test_invalid_yaml_is_an_error_in_its_line(declarations: Declarations) -> None:
    declarations.replace(COLLECTION_FILE, "meta: ", "meta:\t")
    assert declarations.check() == [f"AML-E0D1 {COLLECTION_FILE}:6"]


def test_a_missing_field_is_an_error(declarations: Declarations) -> None:
    declarations.replace(COLLECTION_FILE, 'version: "1.0.0"\nstatus', "status")
    assert declarations.check() == [f"AML-E301 {COLLECTION_FILE}:1"]


def test_an_unknown_field_is_an_error(declarations: Declarations) -> None:
    declarations.replace(COLLECTION_FILE, "scope", "color: 1\nscope")
    assert declarations.check() == [f"AML-E303 {COLLECTION_FILE}:7"]


def test_a_disabled_collection_cannot_be_used(declarations: Declarations) -> None:
    declarations.replace(COLLECTION_FILE, '"active"', '"disabled"')
    assert declarations.check() == [
        f"AML-E102 {AGENT_FILE}:5",
        f"AML-E102 {AGENT_FILE}:6",
        f"AML-E102 {GRANTS_FILE}:3",
    ]


def test_a_collection_without_writeback_cannot_be_written(declarations: Declarations) -> None:
    declarations.replace(COLLECTION_FILE, "enabled: true", "enabled: false")
    assert declarations.check() == [f"AML-E107 {AGENT_FILE}:6", f"AML-E108 {GRANTS_FILE}:3"]


def test_an_agent_needs_a_grant_to_write(declarations: Declarations) -> None:
    declarations.replace(GRANTS_FILE, '"read-write"', '"read"')
    assert declarations.check() == [f"AML-E106 {AGENT_FILE}:6"]


@pytest.mark.parametrize("type", UNUSABLE)
def test_an_unsupported_backend_is_an_error(type: str, tmp_path: Path) -> None:
    declarations = Declarations(tmp_path, type)
    assert declarations.check() == [f"AML-E10D {COLLECTION_FILE}:9"]
    [finding] = check_project(tmp_path, "helper")
    answer = type.removesuffix("_memory").replace("_", "-")
    assert answer in finding["message"]
    assert " -x collections/" in finding["message"]


def test_an_unset_secret_is_a_warning(declarations: Declarations) -> None:
    assert declarations.check() == [f"AML-W240 {COLLECTION_FILE}:9"]
    [collection] = load_project(declarations.folder, None).used()
    assert set(unset_variables(Settings(), collection)) == {"SESSIONS"}


def test_a_set_secret_is_not_reported(
    declarations: Declarations, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SESSIONS", "any text")
    [collection] = load_project(declarations.folder, None).used()
    assert unset_variables(Settings(), collection) == []


def test_the_form_of_a_secret_is_checked(
    declarations: Declarations, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SESSIONS", '{"url": "valkey://host"}')
    [collection] = load_project(declarations.folder, None).used()
    is_memory = collection.backend.type in MEMORIES  # any text is a valid id
    expected = [] if is_memory else [f"AML-E113 {COLLECTION_FILE}:9"]
    assert declarations.check() == expected


async def test_a_field_of_a_json_secret_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SESSIONS", '{"url": "valkey://host"}')
    secrets = Secrets(Settings())
    assert await secrets.get(SecretRef("sessions", key="url")) == "valkey://host"


async def test_an_error_does_not_contain_the_secret(
    declarations: Declarations, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SESSIONS", '{"url": "valkey://host"}')
    [collection] = load_project(declarations.folder, None).used()
    reference, *_ = collection.backend.secret_refs()
    with pytest.raises(SecretError, match="variable SESSIONS") as caught:
        await Secrets(Settings()).get(SecretRef(f"{reference.reference}#port"))
    assert "valkey://" not in str(caught.value)
