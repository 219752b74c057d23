"""The collections of this project, and the findings of `check` in broken ones."""

import os
from pathlib import Path

import pytest

from app.collections.check import check_project, load_project
from app.collections.fields import SecretRef
from app.collections.secrets import SecretError, Secrets, unset_variables
from app.settings import Settings

PROJECT = Path(__file__).parents[1]
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
scope: {lifetime: "user"}
writeback: {enabled: true}
backend:
  type: "custom"
  transport:
    {type: "rest-api", base_url: "env:SECRETS_SESSIONS", credentials: {scheme: "none"}}
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
    for name in [name for name in os.environ if name.startswith(("AWS_", "SECRETS_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))


def check(folder: Path, old: str = "", new: str = "") -> list[str]:
    """Check the project of FILES, in each of which the first `old` is replaced."""
    for path, text in FILES.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(text.replace(old, new, 1), "utf-8")
    found = check_project(folder, None)
    return [f"{one['id']} {one['file'][:5]}:{one['line']}" for one in found]


def test_the_collections_of_this_project_have_no_errors() -> None:
    found = check_project(PROJECT, os.environ.get("AGENT_ID"))
    assert [one for one in found if one["severity"] == "error"] == []


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
        ('  read_collections: ["sessions"]\n', "", ["AML-E10C agent:5"]),
    ],
)
def test_a_finding_names_the_line(old: str, new: str, found: list[str], tmp_path: Path) -> None:
    assert check(tmp_path, old, new) == found


def test_a_used_backend_needs_its_code(tmp_path: Path) -> None:
    found = check(tmp_path, 'type: "custom"', 'type: "valkey"')
    assert found == ["AML-E10D colle:14"]
    (finding,) = check_project(tmp_path, "helper")
    assert "-d session_store=valkey -x collections/" in finding["message"]


async def test_a_secret_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert check(tmp_path) == ["AML-W240 colle:16"]
    collection = load_project(tmp_path, None).used()[0]
    (ref,), settings = collection.backend.secret_refs(), Settings()
    assert unset_variables(settings, collection) == ["SECRETS_SESSIONS"]
    monkeypatch.setenv("SECRETS_SESSIONS", '{"url": "valkey://h"}')
    assert unset_variables(settings, collection) == []
    assert check(tmp_path) == ["AML-E113 colle:16"]
    secrets = Secrets(settings)
    assert await secrets.get(SecretRef(ref.reference, key="url")) == "valkey://h"
    with pytest.raises(SecretError, match="SECRETS_SESSIONS") as caught:
        await secrets.get(SecretRef(f"{ref.reference}#port"))
    assert "valkey://" not in str(caught.value)
