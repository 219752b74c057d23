"""Snapshots: the kept trees are what is rendered, and every way to differ from that is told."""

import shutil
import subprocess
from pathlib import Path

import pytest

from hooks import snapshots
from hooks.rendering import ANSWERS_FILE
from hooks.snapshots import File, Trees
from hooks.variants import PROJECT_NAME, VARIANTS
from tests.conftest import ROOT, Render, Rendered

BASE = "strands-python"
# The first target is tried every day.
TARGETS = [
    name if name == BASE else pytest.param(name, marks=pytest.mark.slow)
    for name in VARIANTS
    if "+" not in name
]
OPTION = "strands-python+openai"
KEPT: Trees = {
    BASE: {"a.py": File(b"one\ntwo\n", False), "run": File(b"#!/bin/sh\n", True)},
    OPTION: {"a.py": File(b"one\nthree\n", False)},
}


def test_the_snapshots_are_what_the_template_renders(rendered: Rendered) -> None:
    whole = {variant: snapshots.read(rendered(variant)) for variant in VARIANTS}
    differences = snapshots.compare(snapshots.recorded(ROOT), snapshots.kept(whole))
    assert not differences, "\n\n".join(
        [*differences, "If the renders are right: python -m hooks snapshots --write"]
    )


@pytest.mark.parametrize("variant", TARGETS)
def test_pytest_copie_renders_the_same_files(variant: str, render: Render) -> None:
    tree = snapshots.read(render(**VARIANTS[variant]))
    answers = tree.pop(ANSWERS_FILE).content.decode()
    assert f"project_name: {PROJECT_NAME}\n" in answers
    kept = snapshots.recorded(ROOT)[variant]
    kept.pop(ANSWERS_FILE)
    assert snapshots.compare({variant: kept}, {variant: tree}) == []


def test_the_kept_answers_say_nothing_about_where_the_template_was() -> None:
    for variant, tree in snapshots.recorded(ROOT).items():
        if ANSWERS_FILE in tree:
            text = tree[ANSWERS_FILE].content.decode()
            assert "_src_path" not in text, variant
            assert "_commit" not in text, variant


def test_equal_trees_have_no_differences() -> None:
    assert snapshots.compare(KEPT, KEPT) == []


def test_changed_content_is_told_with_a_unified_diff() -> None:
    fresh = {**KEPT, BASE: {**KEPT[BASE], "a.py": File(b"one\n2\n", False)}}
    (text,) = snapshots.compare(KEPT, fresh)
    place = "tests/snapshots/strands-python/a.py"
    assert text.splitlines() == [
        f"{place}: content changed",
        f"--- a/{place}",
        f"+++ b/{place}",
        "@@ -1,2 +1,2 @@",
        " one",
        "-two",
        "+2",
    ]


def test_a_missing_file_is_told_with_its_lines() -> None:
    fresh = {**KEPT, BASE: {**KEPT[BASE], "new.py": File(b"x = 1\n", False)}}
    (text,) = snapshots.compare(KEPT, fresh)
    assert text.startswith("tests/snapshots/strands-python/new.py: missing, the render has it")
    assert text.endswith("+x = 1")


def test_an_extra_file_is_told_with_its_lines() -> None:
    fresh = {**KEPT, BASE: {"run": KEPT[BASE]["run"]}}
    (text,) = snapshots.compare(KEPT, fresh)
    assert text.startswith("tests/snapshots/strands-python/a.py: extra, the render does not")
    assert text.endswith("-one\n-two")


def test_a_stale_variant_is_told_once() -> None:
    assert snapshots.compare({**KEPT, "gone": KEPT[BASE]}, KEPT) == [
        "tests/snapshots/gone: stale, no variant has that name"
    ]


def test_a_missing_variant_is_told() -> None:
    assert len(snapshots.compare({OPTION: KEPT[OPTION]}, KEPT)) == 2


def test_a_changed_mode_is_told() -> None:
    fresh = {**KEPT, BASE: {**KEPT[BASE], "run": File(b"#!/bin/sh\n", False)}}
    assert snapshots.compare(KEPT, fresh) == [
        "tests/snapshots/strands-python/run: mode changed, 100755 -> 100644"
    ]


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        (b"one\n", b"one\r\n", "+one\\r"),
        (b"one\n", b"one", "+\\ No newline at end of file"),
        (b"one\n", b"\xff\n", "+\\xff"),
        (b"", b"\n", "+"),
    ],
)
def test_a_change_that_would_not_show_is_written_out(old: bytes, new: bytes, line: str) -> None:
    text = snapshots.difference("a", File(old, False), File(new, False))
    assert line in text.splitlines()


def test_an_option_is_kept_as_the_files_that_it_adds_or_changes() -> None:
    whole = {
        BASE: KEPT[BASE],
        OPTION: {**KEPT[BASE], "a.py": File(b"1", False), "b.py": File(b"2", False)},
    }
    assert set(snapshots.changes(OPTION, whole)) == {"a.py", "b.py"}
    assert snapshots.changes(BASE, whole) == KEPT[BASE]


def test_an_option_may_not_remove_a_file() -> None:
    whole = {BASE: KEPT[BASE], OPTION: {"run": KEPT[BASE]["run"]}}
    with pytest.raises(snapshots.OptionError, match=r"\+openai leaves out a.py, which strands"):
        snapshots.changes(OPTION, whole)


def test_what_is_written_reads_back_as_it_was(tmp_path: Path) -> None:
    stale = tmp_path / snapshots.SNAPSHOTS / "gone" / "a.py"
    stale.parent.mkdir(parents=True)
    stale.touch()
    snapshots.write(tmp_path, KEPT)
    assert snapshots.recorded(tmp_path) == KEPT


def test_git_keeps_every_snapshot_file() -> None:
    # A rendered .gitignore is a snapshot too, and Git obeys it.
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a Git work tree")
    command = ["git", "ls-files", "--others", "--ignored", "--exclude-standard"]
    folder = ROOT / snapshots.SNAPSHOTS
    ignored = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    tree = {
        f"{variant}/{path}" for variant, tree in snapshots.recorded(ROOT).items() for path in tree
    }
    assert tree.intersection(ignored.stdout.splitlines()) == set(), "add them with git add -f"
