"""Snapshots: the kept trees are what is rendered, each content once for a language and a path."""

import shutil
import subprocess
from pathlib import Path

import pytest

from hooks import snapshots
from hooks.committed import CommitError
from hooks.rendering import ANSWERS_FILE
from hooks.review import markdown, review
from hooks.snapshots import COPIED, SAME_AS, File, Tree, Trees
from hooks.template import FILES
from hooks.variants import PROJECT_NAME, VARIANTS
from tests.conftest import ROOT, Render, Rendered
from tests.matrix import ALONE
from tests.updates.history import commit

BASES = [name for name in VARIANTS if "+" not in name]
# The first target is tried every day.
TARGETS = [BASES[0], *(pytest.param(name, marks=pytest.mark.slow) for name in BASES[1:])]


def file(text: str, executable: bool = False) -> File:
    return File(text.encode(), executable)


SOURCES: Tree = {
    "python/{{ a }}/{{ b }}/src/{{ package_name }}/copied.py": file("copied\n"),
    "python/notes.md": file("notes\n"),
    "typescript/{{ a }}/notes.md": file("notes\n"),
}
COPIES: Tree = {"src/my_agent/copied.py": file("copied\n"), "notes.md": file("notes\n")}
PLAIN: Tree = {"a.py": file("1\n"), "run": file("#!/bin/sh\n", True)}
STORE: Tree = {"store.py": file("store\n"), "a.py": file("2\n")}
WHOLE: Trees = {
    "strands-python": PLAIN,
    "strands-python+valkey": {**PLAIN, **STORE, **COPIES},
    "strands-python+s3": {**PLAIN, **STORE, "a.py": file("3\n")},
    "strands-typescript": {"a.ts": file("1\n"), "notes.md": file("notes\n")},
    "strands-typescript+valkey": {
        "a.ts": file("1\n"),
        "notes.md": file("changed\n"),
        "store.py": file("store\n"),
    },
    "vercel-python": PLAIN,
    "vercel-python+valkey": {**PLAIN, **STORE},
    "vercel-python+valkey+agentcore": {**PLAIN, **STORE, "a.py": file("3\n")},
}
KEPT: Trees = {
    "strands-python": PLAIN,
    "strands-python+valkey": {
        **STORE,
        COPIED: file("python/notes.md\npython/{{ a }}/{{ b }}/src/{{ package_name }}/copied.py\n"),
    },
    "strands-python+s3": {"a.py": file("3\n"), SAME_AS: file("store.py = strands-python+valkey\n")},
    "strands-typescript": {"a.ts": file("1\n"), COPIED: file("typescript/{{ a }}/notes.md\n")},
    "strands-typescript+valkey": {"notes.md": file("changed\n"), "store.py": file("store\n")},
    "vercel-python": PLAIN,
    "vercel-python+valkey": {
        SAME_AS: file("a.py = strands-python+valkey\nstore.py = strands-python+valkey\n")
    },
    "vercel-python+valkey+agentcore": {SAME_AS: file("a.py = strands-python+s3\n")},
}


@pytest.mark.parametrize("variant", BASES)
def test_a_plain_snapshot_equals_the_render(variant: str, rendered: Rendered) -> None:
    recorded = {variant: snapshots.recorded(ROOT).get(variant, {})}
    whole = {variant: snapshots.read(rendered(variant))}
    told(recorded, snapshots.kept(whole, snapshots.sources(ROOT)))


@pytest.mark.slow
@pytest.mark.job("rendered", rows=ALONE)
def test_all_snapshots_equal_the_renders(rendered: Rendered) -> None:
    whole = {variant: snapshots.read(rendered(variant)) for variant in VARIANTS}
    told(snapshots.recorded(ROOT), snapshots.kept(whole, snapshots.sources(ROOT)))


def told(kept: Trees, fresh: Trees) -> None:
    """Fail with what differs."""
    changes = review(kept, fresh)
    advice = "If the renders are right: python -m hooks snapshots --write"
    assert not changes, f"{markdown(changes, fresh, 'the snapshots')}\n{advice}"


@pytest.mark.parametrize("variant", TARGETS)
def test_pytest_copie_renders_the_same_files(
    variant: str, render: Render, rendered: Rendered
) -> None:
    tree = snapshots.read(render(**VARIANTS[variant]))
    answers = tree.pop(ANSWERS_FILE).content.decode()
    assert f"project_name: {PROJECT_NAME}\n" in answers
    other = snapshots.read(rendered(variant))
    other.pop(ANSWERS_FILE)
    assert tree == other


def test_the_kept_answers_do_not_say_where_the_template_was() -> None:
    for variant, tree in snapshots.recorded(ROOT).items():
        if ANSWERS_FILE in tree:
            text = tree[ANSWERS_FILE].content.decode()
            assert "_src_path" not in text, variant
            assert "_commit" not in text, variant


def test_a_content_is_kept_once_for_a_language_and_a_path() -> None:
    assert snapshots.kept(WHOLE, SOURCES) == KEPT


def test_whole_renders_come_back_from_snapshots() -> None:
    assert {variant: snapshots.whole(variant, KEPT, SOURCES) for variant in KEPT} == WHOLE


def test_a_change_of_a_copied_file_leaves_the_snapshots_alone() -> None:
    source = "python/notes.md"
    tree = {**WHOLE["strands-python+valkey"], "notes.md": file("changed\n")}
    whole = {**WHOLE, "strands-python+valkey": tree}
    assert snapshots.kept(whole, {**SOURCES, source: file("changed\n")}) == KEPT


@pytest.mark.parametrize(
    ("variant", "change"),
    [
        # Each to a content that an earlier folder has at this path, or to none.
        ("vercel-python+valkey", {"a.py": file("1\n")}),
        ("vercel-python+valkey", {"a.py": file("3\n")}),
        ("vercel-python+valkey+agentcore", {"a.py": file("2\n")}),
        ("vercel-python+valkey", {"store.py": None}),
        ("strands-python+s3", {"store.py": None}),
        ("strands-python+s3", {"store.py": file("store\n", True)}),
        ("strands-python", {"new.py": file("")}),
        ("strands-python+valkey", {"notes.md": None}),
        ("strands-python+valkey", {"notes.md": file("notes\n", True)}),
        ("strands-python+valkey", {"src/my_agent/copied.py": file("changed\n")}),
        ("strands-python+s3", {"notes.md": file("notes\n")}),
    ],
)
def test_no_change_of_a_render_leaves_its_snapshot_as_it_was(
    variant: str, change: dict[str, File | None]
) -> None:
    tree = {**WHOLE[variant], **change}
    fresh = {**WHOLE, variant: {path: one for path, one in tree.items() if one is not None}}
    try:
        assert snapshots.kept(fresh, SOURCES) != KEPT
    except snapshots.OptionError:
        assert change.keys() <= {"new.py", "store.py"}


def test_an_option_may_not_remove_a_file() -> None:
    whole: Trees = {"a-b": PLAIN, "a-b+c": {"run": PLAIN["run"]}}
    with pytest.raises(snapshots.OptionError, match=r"a-b\+c leaves out a.py, which a-b has"):
        snapshots.kept(whole, {})


def test_another_vendor_may_leave_out_modules_of_the_first() -> None:
    whole: Trees = {"vercel-python": PLAIN, "vercel-python+anthropic": {"run": PLAIN["run"]}}
    kept = snapshots.kept(whole, {})
    assert kept["vercel-python+anthropic"] == {snapshots.LEFT_OUT: file("a.py\n")}
    assert {variant: snapshots.whole(variant, kept, {}) for variant in whole} == whole


def test_an_option_that_changes_nothing_has_no_folder() -> None:
    assert snapshots.kept({"a-b": PLAIN, "a-b+c": PLAIN}, {}) == {"a-b": PLAIN}


def test_written_files_read_back_unchanged(tmp_path: Path) -> None:
    stale = tmp_path / snapshots.SNAPSHOTS / "gone" / "a.py"
    stale.parent.mkdir(parents=True)
    stale.touch()
    snapshots.write(tmp_path, KEPT)
    assert snapshots.recorded(tmp_path) == KEPT


def test_a_commit_gives_back_the_whole_renders(tmp_path: Path) -> None:
    root = tmp_path / "below" / "the root"
    tree: Tree = {"a": File(b"1\r\n\xff\0", True), "d/\u00fc \t": File(b"", False)}
    snapshots.write(root, {**KEPT, "a-b": tree})
    for path, source in SOURCES.items():
        target = root / FILES / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(source.content)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    commit(tmp_path, "Snapshots")
    found = snapshots.committed(root, "HEAD")
    assert {variant: found[variant] for variant in [*WHOLE, "a-b"]} == {**WHOLE, "a-b": tree}
    assert found["vercel-python+s3"] == PLAIN, "it had no such option, so it is like its base"


def test_a_commit_whose_snapshots_are_broken_says_so(tmp_path: Path) -> None:
    (tmp_path / FILES).mkdir()
    (tmp_path / FILES / "a.py").touch()
    snapshots.write(tmp_path, {"a-b": {SAME_AS: file("x.py = c-d\n")}})
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    commit(tmp_path, "Snapshots")
    with pytest.raises(CommitError, match="has no file 'c-d', which a snapshot names"):
        snapshots.committed(tmp_path, "HEAD")


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
