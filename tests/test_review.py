"""The review: each rendered hunk once with the renders that have it, against any commit."""

import resource
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from hooks import __main__ as command
from hooks import committed, report, snapshots
from hooks.committed import CommitError
from hooks.hunks import pieces
from hooks.naming import words
from hooks.review import Review, review
from hooks.snapshots import File, Tree, Trees
from hooks.variants import VARIANTS
from tests.conftest import ROOT
from tests.test_hooks import hooks, refused

BASES = [name for name in VARIANTS if "+" not in name]
SHARED = Path("template/{{ layer.plain }}/.env.example.jinja")
LINE = "# Copy to .env"
ONE_PYTHON = Path("template/{{ layer.plain }}/{{ layer.vercel_python_src }}/agent.py")
PYTHON = Path("template/{{ layer.plain }}/{{ layer.python }}")
TESTS = PYTHON.with_name("{{ layer.python_tests }}")
SECONDS = 5
CORES = 2


def git(root: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True)


def commit(root: Path) -> None:
    git(root, "init", "-q")
    # A rendered .gitignore hides files of the snapshots.
    git(root, "add", "-f", ".")
    git(root, "commit", "-q", "--no-verify", "-m", "A commit")


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1
    path.write_text(text.replace(old, new), encoding="utf-8")


@pytest.fixture
def repository(own_template: Path) -> Path:
    """This template and its snapshots of the targets, committed."""
    for name in BASES:
        folder = ROOT / snapshots.SNAPSHOTS / name
        shutil.copytree(folder, own_template / snapshots.SNAPSHOTS / name)
    commit(own_template)
    return own_template


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository that keeps one small snapshot and renders the same, and the current folder."""
    (tmp_path / "template").mkdir()
    (tmp_path / "copier.yml").write_text("_subdirectory: template\n")
    snapshots.write(tmp_path, {"a-b": {"x": File(b"1\n", False)}})
    commit(tmp_path)
    monkeypatch.chdir(tmp_path)
    rendered(monkeypatch, {"a-b": {"x": File(b"1\n", False)}})
    return tmp_path


def rendered(monkeypatch: pytest.MonkeyPatch, trees: Trees) -> None:
    monkeypatch.setattr(snapshots, "trees", lambda *_, **__: trees)


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["hooks", "review", *arguments])
    return command.main()


def changed(root: Path, variants: list[str] = BASES) -> Review:
    """What the review says of the working tree of `root`."""
    old = committed.committed(root, committed.resolve(root, "HEAD"))
    return review({name: old[name] for name in variants}, snapshots.trees(root, variants))


def told(found: Review) -> list[tuple[str, str, str]]:
    return [(c.path, c.piece.said, words(c.renders, found.compared)) for c in found.changes]


def file(*lines: str) -> File:
    return File("".join(f"{line}\n" for line in lines).encode(), False)


def trees(old: File, new: File, *renders: str) -> tuple[Trees, Trees]:
    return {name: {"x": old} for name in renders}, {name: {"x": new} for name in renders}


def test_a_line_of_a_file_that_all_targets_share_is_one_hunk(repository: Path) -> None:
    assert not changed(repository, BASES[:1])
    edit(repository / SHARED, LINE, "# Make it .env")
    found = changed(repository)
    assert told(found) == [(".env.example", "", "all renders")]
    text = report.markdown(found, "HEAD")
    assert (text.count("@@ -1,"), text.count("\n-#"), text.count("\n+#")) == (1, 1, 1)


def test_what_became_of_the_files_of_some_targets(repository: Path) -> None:
    edit(repository / ONE_PYTHON, '"""\n\n', '"""\n\n# One line.\n')
    (repository / PYTHON / "new.txt").write_text("new\n")
    (repository / PYTHON / "AGENTS.md").chmod(0o755)
    (repository / TESTS / "test_turn.py").unlink()
    (repository / TESTS / "test_server.py").rename(repository / PYTHON / "moved.py")
    assert told(changed(repository, ["strands-python", "vercel-python", "vercel-typescript"])) == [
        ("AGENTS.md", "mode 100644 -> 100755", "every python render"),
        ("moved.py", "renamed from tests/test_server.py", "every python render"),
        ("new.txt", "added", "every python render"),
        ("src/app/agent.py", "", "vercel-python"),
        ("tests/test_turn.py", "removed", "every python render"),
    ]


def test_a_commit_gives_back_the_snapshots_with_options_whole() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a Git work tree")
    old = committed.committed(ROOT, committed.resolve(ROOT, "HEAD"))
    assert all("+" not in name or len(old[name]) >= len(old[name.split("+")[0]]) for name in old)


def test_line_ends_and_bytes_come_from_a_commit_as_they_are(tmp_path: Path) -> None:
    tree: Tree = {"a": File(b"1\r\n\xff\0", True), "d/\u00fc \t": File(b"", False)}
    option: Tree = {"b": File(b"no end", False)}
    snapshots.write(tmp_path, {"a-b": tree, "a-b+c": option, "a-b+c+d": {"a": File(b"2", False)}})
    commit(tmp_path)
    found = committed.committed(tmp_path, committed.resolve(tmp_path, "HEAD"))
    assert found["a-b"] == tree
    assert found["a-b+c"] == {**tree, **option}
    assert found["a-b+c+d"] == {**tree, **option, "a": File(b"2", False)}


def test_a_template_below_the_root_of_its_repository_is_found(tmp_path: Path) -> None:
    snapshots.write(tmp_path / "deep", {"a-b": {"x": File(b"1", False)}})
    commit(tmp_path)
    folder = tmp_path / "deep"
    found = committed.committed(folder, committed.resolve(folder, "HEAD"))
    assert found == {"a-b": {"x": File(b"1", False)}}


@pytest.mark.parametrize(
    "ref", ["", "nope", "-x", "--help", "HEAD:x", "HEAD~9", "a\nb", "HEAD..HEAD", "@{u}", "^HEAD"]
)
def test_a_ref_that_names_no_commit_is_one_line_and_code_2(
    ref: str, empty: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert empty.is_dir()
    assert run(monkeypatch, f"--against={ref}") == 2
    assert capsys.readouterr().err == f"error: {ref!r} names no commit here\n"


def test_a_shallow_clone_says_how_to_get_the_rest(empty: Path, tmp_path: Path) -> None:
    git(empty, "commit", "-q", "--allow-empty", "--no-verify", "-m", "Another")
    git(tmp_path, "clone", "-q", "--depth=1", empty.as_uri(), "clone")
    with pytest.raises(CommitError, match=r"'HEAD~1' names no commit here; .* --unshallow"):
        committed.resolve(tmp_path / "clone", "HEAD~1")


def test_a_commit_without_snapshots_is_refused(empty: Path) -> None:
    git(empty, "rm", "-q", "-r", "--cached", "tests")
    git(empty, "commit", "-q", "--no-verify", "-m", "Without")
    with pytest.raises(CommitError, match="has no tests/snapshots"):
        committed.committed(empty, committed.resolve(empty, "HEAD"))


def test_no_repository_and_no_git_are_one_line(
    own_template: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(own_template)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(own_template.parent))
    assert run(monkeypatch, "--against", "HEAD") == 2
    monkeypatch.setenv("PATH", "")
    assert run(monkeypatch, "--against", "HEAD") == 2
    first, second = capsys.readouterr().err.splitlines()
    assert "not a git repository" in first
    assert second.startswith("error: git is not installed")


def test_the_exit_code_says_whether_something_changes(
    empty: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert empty.is_dir()
    assert run(monkeypatch, "--against", "HEAD") == 0
    assert capsys.readouterr().out.startswith("nothing changes; renders compared with HEAD (")
    rendered(monkeypatch, {"a-b": {"x": File(b"2\n", False)}})
    assert run(monkeypatch, "--against", "HEAD") == 1
    shown = capsys.readouterr()
    # No terminal, no colours; and a change is no error.
    assert "\nx\n  all renders\n@@ -1,1 +1,1 @@\n-1\n+2\n" in shown.out
    assert shown.err == ""
    assert run(monkeypatch, "--against", "HEAD", "--format", "markdown") == 1
    assert "\n```diff\n@@ -1,1 +1,1 @@\n-1\n+2\n```\n" in capsys.readouterr().out


def test_a_template_that_does_not_render_is_code_2_not_a_change(
    empty: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (empty / "copier.yml").write_text("a: [")
    assert run(monkeypatch, "--against", "HEAD") == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_the_same_change_at_other_lines_is_one_hunk() -> None:
    old, new = trees(file("a", "b", "c", "d", "old"), file("a", "b", "c", "d", "new"), "a-b")
    more = trees(file(*"0123abcd", "old"), file(*"0123abcd", "new"), "c-d")
    (change,) = review({**old, **more[0]}, {**new, **more[1]}).changes
    assert change.renders == ["a-b", "c-d"]
    assert change.piece.hunk is not None
    assert change.piece.hunk.lines == (" b", " c", " d", "-old", "+new")


def test_a_file_that_differs_beside_the_change_is_shown_with_what_is_the_same() -> None:
    old, new = trees(file("one", "b", "old", "c"), file("one", "b", "new", "c"), "a-b")
    more = trees(file("two", "b", "old", "d"), file("two", "b", "new", "d"), "c-d")
    (change,) = review({**old, **more[0]}, {**new, **more[1]}).changes
    assert change.piece.hunk is not None
    assert change.piece.hunk.lines == (" b", "-old", "+new")
    assert change.piece.hunk.header == "@@ -2,2 +2,2 @@"


def test_a_bracket_among_different_lines_is_not_the_same_change() -> None:
    old, new = trees(file("one", "}"), file("one", "},"), "a-b")
    more = trees(file("two", "}"), file("two", "},"), "c-d")
    assert len(review({**old, **more[0]}, {**new, **more[1]}).changes) == 2


def test_what_one_render_has_twice_is_shown_twice() -> None:
    text = ["old", *"abcdefgh", "old"]
    other = [line.replace("old", "new") for line in text]
    found = review(*trees(file(*text), file(*other), "a-b", "c-d"))
    assert [change.renders for change in found.changes] == [["a-b", "c-d"]] * 2


def test_another_path_is_another_hunk() -> None:
    old: Trees = {"a-b": {"x": file("1")}, "c-d": {"y": file("1")}}
    new: Trees = {"a-b": {"x": file("2")}, "c-d": {"y": file("2")}}
    assert [change.path for change in review(old, new).changes] == ["x", "y"]


def test_a_render_on_one_side_only_is_told_by_names() -> None:
    base: Tree = {"x": file("1"), "y": file("2")}
    option: Tree = {**base, "x": file("3"), "new/a": file("4"), "new/b": file("5")}
    found = review({"a-b": base, "gone": base}, {"a-b": base, "a-b+c": option, "e-f": base})
    assert found.changes == []
    assert found.added == {"a-b+c": "compared with a-b adds new/; changes x", "e-f": "files: 2"}
    assert found.removed == ["gone"]
    assert "`gone`: no longer rendered" in report.markdown(found, "HEAD")


@pytest.mark.parametrize(
    ("old", "new", "said", "line"),
    [
        (b"a\n", b"a\r\n", "", "+a\\r"),
        (b"a\n", b"a", "", "+\\ No newline at end of file"),
        (b"\xe4\n", b"\xf6\n", "", "+\\xf6"),
        (b"a\0", b"b\0", "changed: 2 bytes (2aaa8e5d) -> 2 bytes (", None),
        (b"\xff\n", b"\\xff\n", "changed: 2 bytes (", None),
        (b"a", b"", "", "-a"),
    ],
)
def test_contents_that_are_hard_to_show(old: bytes, new: bytes, said: str, line: str) -> None:
    first, *_ = pieces(File(old, False), File(new, False))
    assert first.said.startswith(said[:16])
    assert bool(first.hunk) is (line is not None)
    assert first.hunk is None or line in first.hunk.lines


def test_nothing_that_is_shown_acts_on_a_terminal_or_leaves_its_fence() -> None:
    text = "\x1b[31m \u202e ````", "\t\u00fc \u65e5"
    found = review(*trees(file(), file(*text), "a-b"))
    assert "\n`````diff\n" in report.markdown(found, "HEAD")
    shown = click.unstyle(report.terminal(found, "HEAD"))
    assert "+\\x1b[31m \\u202e ````\n+\t\u00fc \u65e5" in shown


def test_markdown_is_bounded_and_says_what_is_left_off() -> None:
    files = {f"f{number}`": file(*map(str, range(number * 100))) for number in range(1, 9)}
    found = review({"a-b": {}}, {"a-b": files})
    assert "\n… and 400 lines more\n" in report.markdown(found, "HEAD")
    text = report.markdown(found, "HEAD", 15_000)
    assert len(text.encode()) <= 15_000
    assert "**Left off, as a summary has to be short:** " in text
    assert text.splitlines()[-3].endswith(
        "changes: 4, in `` f5` ``, `` f6` ``, `` f7` ``, `` f8` ``"
    )
    assert "and 400" not in report.terminal(found, "HEAD")


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        (list(VARIANTS), "all renders"),
        (["vercel-python"], "vercel-python"),
        ([v for v in VARIANTS if v.startswith("vercel-python")], "vercel-python (all)"),
        ([v for v in VARIANTS if "-python" in v], "every python render"),
        ([v for v in VARIANTS if "valkey" in v], "every render with +valkey"),
        (BASES, "every render without an option"),
        (list(VARIANTS)[1:], "all renders but strands-python"),
        (
            ["strands-python", "vercel-typescript+valkey"],
            "strands-python, vercel-typescript+valkey",
        ),
    ],
)
def test_a_set_of_renders_is_named_shortly(chosen: list[str], expected: str) -> None:
    assert words(chosen, VARIANTS) == expected


@pytest.mark.slow
def test_the_command_takes_under_5_seconds_for_every_variant(own_template: Path) -> None:
    shutil.copytree(ROOT / snapshots.SNAPSHOTS, own_template / snapshots.SNAPSHOTS)
    commit(own_template)
    assert hooks("review", "--against", "HEAD", cwd=own_template).returncode == 0
    edit(own_template / SHARED, LINE, "# Make it .env")
    spent = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        result = hooks("review", "--against", "HEAD", cwd=own_template)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert result.returncode == 1, result.stderr
        assert result.stdout.count("@@ -") == 1
        assert "\n  all renders\n" in result.stdout
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    # The clock would measure what else the machine does; this is the time of idle cores.
    assert min(spent) / CORES < SECONDS, spent


@pytest.mark.slow
def test_wrong_use_of_the_command_is_one_line(own_template: Path, tmp_path: Path) -> None:
    commit(own_template)
    refused(hooks("review", cwd=own_template), 2, "Missing option '--against'")
    refused(hooks("review", "--against", "HEAD", cwd=own_template), 2, "has no tests/snapshots")
    refused(hooks("review", "--against", "HEAD", cwd=tmp_path), 2, "go to the template's root")
