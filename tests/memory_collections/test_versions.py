"""Versions of collections, which `check --against REF` compares, and their statuses."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.installed import installed
from tests.stores.agents import command

FILE = """---
spec_version: "1.2"
collection_id: "{id}"
version: "{version}"
status: "active"
meta:
  name: "Sessions"
  description: >-
    Keeps sessions. They end.
  owner: "tests"
  last_updated: "2026-01-01"
scope:
  lifetime: "session"
backend:
  type: "valkey"
  endpoint_secret: "secrets/valkey/sessions"
  ttl_seconds: 60
writeback:
  enabled: true
---
"""
TTL, PLACE = ("ttl_seconds: 60", "ttl_seconds: 70"), ("valkey/sessions", "valkey/others")
TEXT, SPEC = ("They end.", "They all end."), ('"1.2"', '"1.3"')
PATCH, MINOR, MAJOR = "Raise it to 1.2.4.", "Raise it to 1.3.0.", "Raise it to 2.0.0."
# The version before and now, what else changes, and the end of what is said of it, if it is wrong.
CASES: list[tuple[str, str, list[tuple[str, str]], str]] = [
    ("1.2.3", "1.2.3", [], ""),
    ("1.2.3", "3.0.0", [], ""),
    ("1.2.3", "1.2.2", [], "v1 has 1.2.3. Raise it to 1.2.3."),
    ("1.2.3", "1.2.3", [TEXT], f"v1 has 1.2.3, and since then meta changed. {PATCH}"),
    ("1.2.3", "1.2.4", [TEXT], ""),
    ("1.2.3", "1.2.4", [TTL], f"since then backend.ttl_seconds changed. {MINOR}"),
    ("1.2.3", "1.2.9", [("enabled: true", "enabled: false")], f"then writeback changed. {MINOR}"),
    ("1.2.3", "1.3.0", [TTL, TEXT], ""),
    ("1.2.3", "1.9.9", [PLACE], f"since then backend.endpoint_secret changed. {MAJOR}"),
    ("1.2.3", "1.2.3", [PLACE, TTL, TEXT], MAJOR),
    ("1.2.3", "2.0.0", [PLACE, TTL, TEXT], ""),
    ("1.2.3", "2.0.0-rc.1", [PLACE], ""),
    ("1.2.3", "10.0.0+build-7", [PLACE], ""),
    ("2.0.0-rc.1", "2.0.0", [PLACE], ""),
    ("2.0.0-rc.1+a.b", "1.9.9", [], "v1 has 2.0.0-rc.1+a.b. Raise it to 2.0.0."),
    ("0.9.0", "0.9.0", [PLACE], "Raise it to 1.0.0."),
    ("none", "0.0.0", [PLACE], ""),
    ("1.2.3\x07", "0.0.0", [], ""),
    ("1.2.3", "1.3.0", [SPEC], "-"),
]
pytestmark = pytest.mark.slow


@pytest.fixture(params=["strands-python", "vercel-typescript"])
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A rendered project whose collections were committed, in a folder of its repository."""
    rendered = installed(request.param, session_store="valkey")
    folder = tmp_path / "repository" / "agent"
    for name in ("agents", "iam", "collections"):
        shutil.copytree(rendered / name, folder / name)
    for at, (version, *_) in enumerate(CASES):
        text = FILE.format(id=f"case-{at:02}", version=version)
        (folder / "collections" / f"case-{at:02}.collection.md").write_text(text)
    run = ("git", "-c", "user.name=t", "-c", "user.email=t@example.com", "-C", str(folder.parent))
    own = os.environ | {"GIT_CONFIG_GLOBAL": "/dev/null"}
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "1"], ["tag", "v1"]):
        subprocess.run([*run, *words], check=True, env=own)
    (folder / ".rendered").symlink_to(rendered)
    return folder


def check(project: Path, *words: str, **variables: str) -> list[dict[str, Any]]:
    """What `check` says of versions; its other findings have other ids."""
    done = subprocess.run(
        [*command((project / ".rendered").resolve(), "check"), "--json", *words],
        cwd=project,
        env={"PATH": os.environ["PATH"], "HOME": str(project), **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)["diagnostics"]
    return [it for it in found if it["id"] in ("AML-E016", "AML-E017")]


@pytest.mark.full
def test_a_version_grows_with_its_changes(project: Path) -> None:
    for at, (_, version, edits, _) in enumerate(CASES):
        text = FILE.format(id=f"case-{at:02}", version=version)
        for old, new in edits:
            assert old in text
            text = text.replace(old, new)
        (project / "collections" / f"case-{at:02}.collection.md").write_text(text)
    new = FILE.format(id="case-new", version="0.0.1")
    (project / "collections" / "case-new.collection.md").write_text(new)

    assert check(project) == []
    for given in ({"CHECK_AGAINST": "v1"}, {}):
        words = [] if given else ["--against", "v1"]
        found = {it["file"]: it for it in check(project, *words, **given)}
        for at, (*_, expected) in enumerate(CASES):
            said = found.pop(f"collections/case-{at:02}.collection.md", None)
            if expected in ("", "-"):  # another error says enough about a file that is not valid
                assert said is None, (at, said)
            else:
                assert said, at
                assert said["line"] == 4
                assert said["message"].startswith("The version is too low: ")
                assert said["message"].endswith(expected), (at, said)
        assert found == {}


@pytest.mark.full
def test_an_unknown_commit_is_an_error(project: Path) -> None:
    assert check(project, "--against=") == []
    for ref in ("v2", "--output=x", "v1:agent", "a b\x1b[2J"):
        (found,) = check(project, f"--against={ref}")
        assert found["message"].startswith("Cannot compare with ")
        assert found["message"].endswith(": it is not a commit or tag of this repository.")
        assert "\x1b" not in found["message"]
    assert not (project / "x").exists()


def test_without_git_or_a_repository_there_is_an_error(project: Path) -> None:
    shutil.rmtree(project.parent / ".git")
    (found,) = check(project, "--against", "v1", GIT_CEILING_DIRECTORIES=str(project.parents[1]))
    assert found["message"].endswith("it is not a commit or tag of this repository.")
    (found,) = check(project, "--against", "v1", PATH="")
    assert "cannot run git" in found["message"]


@pytest.mark.full
@pytest.mark.parametrize("status", ["active", "deprecated", "draft", "disabled"])
def test_a_status_decides_whether_an_agent_runs(project: Path, status: str) -> None:
    for path in (project / "collections").glob("case-*"):
        path.unlink()
    file = project / "collections" / "sessions.collection.md"
    file.write_text(file.read_text().replace('status: "active"', f'status: "{status}"'))
    said = {}
    for name, words in {"check": ["--json"], "chat": []}.items():
        said[name] = subprocess.run(
            [*command((project / ".rendered").resolve(), name), *words],
            cwd=project,
            env={"PATH": os.environ["PATH"], "HOME": str(project)},
            input="Hello",
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    found = json.loads(said["check"].stdout)["diagnostics"]
    about = [it["message"] for it in found if it["id"] in ("AML-E102", "AML-E103", "AML-W208")]
    if status in ("active", "deprecated"):
        assert (said["check"].returncode, said["chat"].returncode) == (0, 0)
        assert 'Now you said: "Hello"' in said["chat"].stdout
        assert bool(about) == (status == "deprecated")
    else:
        assert said["check"].returncode == 1
        assert said["chat"].returncode != 0
        assert "Hello" not in said["chat"].stdout
        assert about[0] in said["chat"].stderr
    if about:
        assert about[0].startswith(f"Collection sessions is {'a ' * (status == 'draft')}{status}: ")
