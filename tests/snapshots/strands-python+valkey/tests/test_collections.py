"""The collections of this project, and how `check` tells what is wrong with one."""

import os
from pathlib import Path

import pytest

from app.memory.options import Options
from app.memory.project import check_project, load_project
from app.memory.secrets_check import check_secrets

PROJECT = Path(__file__).parents[1]
COLLECTION = """---
spec_version: "1.2"
collection_id: "sessions"
version: "1.0.0"
status: "active"
meta:
  name: "Sessions"
  description: "Keeps the turns that were completed. Other instances go on with them."
  owner: "platform"
  last_updated: "2026-04-01"
scope: {lifetime: "session"}
backend:
  type: "valkey"
  endpoint_secret: "secrets/valkey/sessions"
  ttl_seconds: 86400
writeback: {enabled: true}
---
"""
AGENT = """---
agent_id: "helper"
memory:
  mode: "session"
  read_collections: ["sessions"]
  write_collections: ["sessions"]
---
"""
GRANTS = """---
agent_id: "helper"
collections: [{ref: "sessions", access: "read-write"}]
---
"""
FILES = {
    "collections/sessions.collection.md": COLLECTION,
    "agents/helper.agent.md": AGENT,
    "iam/helper.iam.md": GRANTS,
}


def check(folder: Path, old: str, new: str) -> list[str]:
    for path, text in FILES.items():
        (folder / path).parent.mkdir()
        (folder / path).write_text(text.replace(old, new, 1), "utf-8")
    return [f"{one['id']} {one['file'][:5]}:{one['line']}" for one in check_project(folder)]


def test_nothing_is_wrong_with_the_collections_of_this_project() -> None:
    assert [one for one in check_project(PROJECT) if one["severity"] == "error"] == []
    project = load_project(PROJECT)
    assert {*project.reads, *project.writes} <= project.collections.keys()


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("ttl_seconds: 86400", "ttl_seconds: 0x10", []),
        ("ttl_seconds: 86400", "ttl_seconds: 1.5", ["AML-E063 colle:15"]),
        ("ttl_seconds: 86400", "ttl_seconds: &a 5", ["AML-E007 colle:15"]),
        ("  ttl_seconds: 86400", "\tttl_seconds: 86400", ["AML-E0D0 colle:15"]),
        ('"platform"', '"platform', ["AML-E0D3 colle:9"]),
        ("  ttl_seconds: 86400\n", "", ["AML-W206 colle:12"]),
        ('"1.0.0"', "1.0", ["AML-E016 colle:4"]),
        ("scope", "color: 1\nscope", ["AML-E003 colle:11"]),
        ('"active"', '"disabled"', ["AML-E102 agent:5", "AML-E102 agent:6", "AML-E14A iam/h:3"]),
        ('mode: "session"', 'mode: "none"', ["AML-E104 agent:5", "AML-E104 agent:6"]),
        ("enabled: true", "enabled: false", ["AML-E107 agent:6", "AML-E108 iam/h:3"]),
        ('"read-write"', '"read"', ["AML-E106 agent:6"]),
    ],
)
def test_each_finding_names_the_line(old: str, new: str, found: list[str], tmp_path: Path) -> None:
    assert check(tmp_path, old, new) == found


def test_a_secret_that_is_not_there_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith(("AWS_", "SECRETS_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert check(tmp_path, 'sessions"\n  ttl', 'sessions#url"\n  ttl') == []

    def told() -> list[tuple[str, int]]:
        return [(one["id"], one["line"]) for one in check_secrets(tmp_path, Options())]

    assert told() == [("AML-W242", 14)]
    monkeypatch.setenv("SECRETS_VALKEY_SESSIONS", "valkey://h")
    assert told() == [("AML-W241", 14)]
    monkeypatch.setenv("SECRETS_VALKEY_SESSIONS", '{"url": "valkey://h"}')
    assert told() == []
