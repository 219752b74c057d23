"""Broken collections: neither checker crashes, and both find the same in each.

Syntax errors are the parsers' own: of a file with one, only the verdict is compared, and of every
hundred mutants two may differ in it, where one parser is laxer about brackets or comments.
"""

import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.fuzz_collections.mutants import mutants
from tests.memory_collections.projects import (
    EXAMPLES,
    RENDERS,
    Edits,
    as_lines,
    edited,
    files_of,
    findings,
    put,
)

pytestmark = pytest.mark.full
COUNT = 1_000  # of the weekly run, taken from all at equal distances
DEEP = os.environ.get("ALL_MUTANTS") == "1"


@cache
def all_mutants() -> list[tuple[str, dict[str, Any]]]:
    """The name and the files of each mutant."""
    return list(mutants({name: files_of(name) for name in EXAMPLES}))


def files(folder: Path, project: dict[str, Any], render: str = "valkey") -> dict[str, Any]:
    """Write a project; return the request that checks it. Lone surrogates are bytes."""
    folder.mkdir(parents=True)
    contents = {
        path: text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
        for path, text in project.items()
    }
    put(folder, contents)
    return {"folder": str(folder), "agent_id": None, "render": render}


def compare(projects: dict[str, dict[str, Any]], top: Path) -> tuple[dict[str, Any], list[str]]:
    """The findings that differ, by name; and the names where only one finds a syntax error."""
    requests = []
    for number, (name, project) in enumerate(projects.items()):
        example = "".join(name.split()[1:2])  # behind the number of a mutant
        requests.append(files(top / str(number), project, RENDERS.get(example, "valkey")))
    python, typescript = findings("python", requests), findings("typescript", requests)
    different, verdicts = {}, []
    for name, one, other in zip(projects, python, typescript, strict=True):
        syntax = {each["file"] for each in [*one, *other] if each["id"] == "AML-E002"}
        if comparable(one, syntax) != comparable(other, syntax):
            different[name] = (one, other)
        if any(rejected(one, file) != rejected(other, file) for file in syntax):
            verdicts.append(name)
    return different, verdicts


def comparable(found: list[dict[str, Any]], syntax: set[str]) -> list[str]:
    """The findings in the files without a syntax error."""
    return sorted(as_lines([one for one in found if one["file"] not in syntax]))


def rejected(found: list[dict[str, Any]], file: str) -> bool:
    return any(one["severity"] == "error" and one["file"] == file for one in found)


def test_there_are_mutants_of_each_field_of_each_example() -> None:
    names = [name for name, _ in all_mutants()]
    assert len(names) >= 20_000
    for example in EXAMPLES:
        for path, text in files_of(example).items():
            changed = [one for one in names if one.startswith(f"{example} {path} ")]
            assert len(changed) > 20 * text.split("---\n")[1].count("\n"), (example, path)


def test_they_are_the_same_each_time() -> None:
    again = mutants({name: files_of(name) for name in EXAMPLES})
    assert all(one == other for one, other in zip(all_mutants(), again, strict=True))


def test_both_languages_find_the_same_in_each_mutant(tmp_path: Path) -> None:
    every = all_mutants()
    step = 1 if DEEP else len(every) // COUNT
    chosen = {f"{number} {name}": one for number, (name, one) in enumerate(every[::step])}
    different, verdicts = compare(chosen, tmp_path)
    assert different == {}
    assert len(verdicts) <= len(chosen) / 50, verdicts


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
    assert compare(projects, tmp_path) == ({}, [])


def test_an_unreadable_file_is_an_error(tmp_path: Path) -> None:
    request = files(tmp_path / "project", edited("valkey", []))
    hidden = tmp_path / "project" / "collections" / "sessions.collection.md"
    hidden.chmod(0)
    os.mkfifo(hidden.with_name("pipe.collection.md"))
    python, typescript = findings("python", [request]), findings("typescript", [request])
    assert [*map(as_lines, python)] == [*map(as_lines, typescript)]
    assert ("AML-E00E", "collections/pipe.collection.md") in {
        (one["id"], one["file"]) for one in python[0]
    }
