"""Broken collections: neither checker crashes, and both find the same in each."""

import os
from pathlib import Path
from typing import Any

import pytest

from tests.collections_check import EXAMPLES, Edits, edited, files_of, findings, put
from tests.mutants import mutants

MUTANTS = list(mutants({name: files_of(name) for name in EXAMPLES}))
COUNT = 2_000  # of the everyday run, taken from all at equal distances
DEEP = os.environ.get("ALL_MUTANTS") == "1"


def files(folder: Path, project: dict[str, Any]) -> dict[str, Any]:
    """Write a project; what a driver has to know of it. Halves of surrogate pairs are bytes."""
    folder.mkdir(parents=True)
    contents = {
        path: text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
        for path, text in project.items()
    }
    put(folder, contents)
    return {"folder": str(folder), "agent_id": None, "against": None}


def disagreements(projects: dict[str, dict[str, Any]], top: Path) -> dict[str, Any]:
    """By name the findings in both languages where those are not the same."""
    requests = [files(top / str(number), one) for number, one in enumerate(projects.values())]
    python, typescript = findings("python", requests), findings("typescript", requests)
    found = zip(projects, python, typescript, strict=True)
    return {name: (one, other) for name, one, other in found if one != other}


def test_there_are_mutants_of_each_field_of_each_example() -> None:
    assert len(MUTANTS) >= 20_000
    names = [name for name, _ in MUTANTS]
    for example in EXAMPLES:
        for path, text in files_of(example).items():
            changed = [one for one in names if one.startswith(f"{example} {path} ")]
            assert len(changed) > 20 * text.split("---\n")[1].count("\n"), (example, path)


def test_they_are_the_same_each_time() -> None:
    again = mutants({name: files_of(name) for name in EXAMPLES})
    assert all(one == other for one, other in zip(MUTANTS, again, strict=True))


@pytest.mark.slow
def test_both_languages_find_the_same_in_each_mutant(tmp_path: Path) -> None:
    step = 1 if DEEP else len(MUTANTS) // COUNT
    chosen = {f"{number} {name}": one for number, (name, one) in enumerate(MUTANTS[::step])}
    assert disagreements(chosen, tmp_path) == {}


@pytest.mark.slow
def test_both_languages_find_the_same_in_strange_folders(tmp_path: Path) -> None:
    name = "collections/sessions.collection.md"
    loop: Edits = [{"file": name, "link": "sessions.collection.md"}]
    strange: dict[str, Edits] = {
        "a folder as a collection": [{"file": name, "folder": True}],
        "a link to itself": loop,
        "a link to nothing": [{"file": name, "link": "nothing"}],
        "a link to a folder": [{"file": name, "link": "."}],
        "a link to a device": [{"file": name, "link": "/dev/zero"}],
        "a link to another file": [{"file": name, "link": "../agents/support.agent.md"}],
        "no collection": [{"file": name}],
        "collections is a file": [{"file": name}, {"file": "collections", "text": "x"}],
        "agents is a file": [
            {"file": "agents/support.agent.md"},
            {"file": "agents", "text": "x"},
        ],
        "iam is a link to itself": [{"file": "iam/support.iam.md"}, {"file": "iam", "link": "iam"}],
        "iam is a link to nothing": [{"file": "iam/support.iam.md"}, {"file": "iam", "link": "no"}],
        "a file without a name": [{"file": "collections/.collection.md", "text": "---\n---\n"}],
        "a file with an odd name": [{"file": "agents/é \x1b[31m\n.agent.md", "text": "x"}],
        "a file of zeros": [{"file": name, "base64": "AAAAAAAA"}],
        "half of UTF-8": [{"file": name, "base64": "LS0tCmE6ICLw"}],
        "UTF-16": [{"file": name, "base64": "//4tAC0ALQAKAA=="}],
    }
    projects = {what: edited("valkey", edits) for what, edits in strange.items()}
    projects["nothing at all"] = {}
    assert disagreements(projects, tmp_path) == {}


@pytest.mark.slow
def test_what_cannot_be_read_is_told(tmp_path: Path) -> None:
    request = files(tmp_path / "project", edited("valkey", []))
    hidden = tmp_path / "project" / "collections" / "sessions.collection.md"
    hidden.chmod(0)
    os.mkfifo(hidden.with_name("pipe.collection.md"))
    python, typescript = findings("python", [request]), findings("typescript", [request])
    assert python == typescript
    assert ("AML-E00E", "collections/pipe.collection.md") in {
        (one["id"], one["file"]) for one in python[0]
    }
