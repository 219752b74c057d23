"""The review: each rendered hunk once with the renders that have it, against any commit."""

import shutil
from pathlib import Path

import pytest

from hooks import snapshots
from hooks.committed import CommitError, resolve
from hooks.review import MAX_BYTES, Change, markdown, review, words
from hooks.snapshots import File, Trees
from hooks.variants import VARIANTS
from tests.template.test_check import PROJECT, SOUND, build, keep_variants
from tests.template.test_hooks import Hooks, hooks
from tests.updates.history import commit, git

__all__ = ["hooks"]  # a fixture

ALL = list(VARIANTS)
BASES = [name for name in ALL if "+" not in name]


NAMES = ["strands-python", "vercel-python", "vercel-python+anthropic"]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small template with the snapshots of three variants, committed."""
    root = build(tmp_path_factory.mktemp("prepared") / "template", SOUND)
    with pytest.MonkeyPatch.context() as patch:
        keep_variants(patch, *NAMES)
        snapshots.write(root, snapshots.rendered(root))
    git(root, "init", "--quiet")
    commit(root, "A commit")
    return root


@pytest.fixture
def repository(prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """That template for one test, which runs in it."""
    keep_variants(monkeypatch, *NAMES)
    root = Path(shutil.copytree(prepared, tmp_path / "template"))
    monkeypatch.chdir(root)
    return root


def file(*lines: str) -> File:
    return File("".join(f"{line}\n" for line in lines).encode(), False)


def trees(old: File, new: File, *renders: str) -> tuple[Trees, Trees]:
    return {name: {"x": old} for name in renders}, {name: {"x": new} for name in renders}


def test_the_exit_code_says_whether_something_changes(repository: Path, hooks: Hooks) -> None:
    same = hooks("review", "--against", "HEAD")
    assert (same.code, same.err) == (0, "")
    assert "no changes, against HEAD" in same.out

    (repository / PROJECT / "README.md.jinja").write_text("Read {{ project_name }}\n")
    (repository / PROJECT / "src/my_agent/agent.py").chmod(0o755)
    (repository / PROJECT / "new.txt").write_text("new\n")
    found = hooks("review", "--against", "HEAD")
    assert (found.code, found.err) == (1, "")
    fence = "`" * 10
    assert (
        found.out
        == f"""\
## Changes in the renders

changed files: 3, against HEAD

### `README.md`

all renders

{fence}diff
@@ -1 +1 @@
-Called my-agent
+Read my-agent
{fence}

### `new.txt`

added; all renders

{fence}diff
@@ -0,0 +1 @@
+new
{fence}

### `src/my_agent/agent.py`

mode 100755; all renders
"""
    )


def test_a_new_option_is_compared_with_its_base_and_a_dropped_one_is_told(
    repository: Path, hooks: Hooks
) -> None:
    with (repository / "copier.yml").open("a") as file:
        file.write("model: {type: str, help: Which, default: bedrock}\n")
    kept = snapshots.rendered(repository)
    kept["old-python"] = kept.pop("vercel-python+anthropic")
    snapshots.write(repository, kept)
    commit(repository, "Other options")
    name = "{% if model == 'anthropic' %}anthropic.md{% endif %}"
    (repository / PROJECT / name).write_text("new\n")
    found = hooks("review", "--against", "HEAD")
    assert found.code == 1
    assert found.out.startswith("- no longer rendered: old-python\n")
    assert found.out.count("###") == 2
    assert "### `.copier-answers.yml`\n\nvercel-python+anthropic\n" in found.out
    assert "### `anthropic.md`\n\nadded; vercel-python+anthropic\n" in found.out


@pytest.mark.parametrize(
    "ref", ["", "nope", "-x", "--help", "HEAD:x", "HEAD~9", "a\nb", "HEAD..HEAD", "@{u}", "^HEAD"]
)
def test_a_ref_that_names_no_commit_is_one_line_and_code_2(
    ref: str, repository: Path, hooks: Hooks
) -> None:
    assert repository.is_dir()
    hooks("review", f"--against={ref}").refused(2, f"{ref!r} is not a commit in this clone")


def test_a_shallow_clone_says_how_to_get_the_rest(repository: Path, tmp_path: Path) -> None:
    commit(repository, "Another")
    git(tmp_path, "clone", "-q", "--depth=1", repository.as_uri(), "clone")
    with pytest.raises(
        CommitError, match=r"'HEAD~1' is not a commit in this clone; .* --unshallow"
    ):
        resolve(tmp_path / "clone", "HEAD~1")


def test_a_commit_without_snapshots_is_refused(repository: Path, hooks: Hooks) -> None:
    git(repository, "rm", "-q", "-r", "--cached", "tests")
    git(repository, "commit", "-q", "-m", "Without")
    hooks("review", "--against", "HEAD").refused(2, "has no snapshots to compare with")


def test_a_template_that_does_not_render_is_code_2_not_a_change(
    repository: Path, hooks: Hooks
) -> None:
    (repository / "copier.yml").write_text("a: [")
    hooks("review", "--against", "HEAD").refused(2, "is not YAML")


def test_no_repository_and_no_git_are_one_line(
    repository: Path, hooks: Hooks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(build(tmp_path / "plain", SOUND))
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    hooks("review", "--against", "HEAD").refused(2, "not a git repository")
    monkeypatch.setenv("PATH", "")
    monkeypatch.chdir(repository)
    hooks("review", "--against", "HEAD").refused(2, "git is not installed")


def test_the_same_change_at_other_lines_or_among_others_is_one_hunk() -> None:
    old, new = trees(file("a", "b", "old", "c"), file("a", "b", "new", "c"), "a-b")
    more = trees(file(*"0123xb", "old", "d"), file(*"0123xb", "new", "d"), "c-d")
    (change,) = review({**old, **more[0]}, {**new, **more[1]})
    assert change.renders == ["a-b", "c-d"]
    assert change.hunk == ("@@ -1,4 +1,4 @@", " a", " b", "-old", "+new", " c")


def test_a_bracket_among_different_lines_is_not_the_same_change() -> None:
    old, new = trees(file("one", "}"), file("one", "},"), "a-b")
    more = trees(file("two", "}"), file("two", "},"), "c-d")
    assert len(review({**old, **more[0]}, {**new, **more[1]})) == 2


def test_duplicates_in_a_render_are_shown_twice() -> None:
    text = ["old", *"abcdefgh", "old"]
    other = [line.replace("old", "new") for line in text]
    found = review(*trees(file(*text), file(*other), "a-b", "c-d"))
    assert [change.renders for change in found] == [["a-b", "c-d"]] * 2


def test_another_path_is_another_hunk() -> None:
    old: Trees = {"a-b": {"x": file("1")}, "c-d": {"y": file("1")}}
    new: Trees = {"a-b": {"x": file("2")}, "c-d": {"y": file("2")}}
    assert [change.path for change in review(old, new)] == ["x", "y"]


def test_a_file_that_is_gone_is_told_without_its_lines() -> None:
    assert review({"a-b": {"x": file("1")}}, {"a-b": {}}) == [Change("x", "removed", (), ["a-b"])]


@pytest.mark.parametrize(
    ("old", "new", "note", "line"),
    [
        (b"a\n", b"a\r\n", "", "+a\\r"),
        (b"a\n", b"a", "", "+\\ No newline at end of file"),
        (b"\xe4\n", b"\xf6\n", "", "+\\xf6"),
        (b"a\0\n", b"b\0\n", "", "+b\0"),
        (b"", b"\n", "", "+"),
        (b"a", b"", "", "-a"),
        (b"\xff\n", b"\\xff\n", "changed in bytes that look the same", None),
    ],
)
def test_contents_that_are_hard_to_show(
    old: bytes, new: bytes, note: str, line: str | None
) -> None:
    (change,) = review(*trees(File(old, False), File(new, False), "a-b"))
    assert change.note == note
    assert line in change.hunk if line else change.hunk == ()


def test_nothing_that_is_shown_acts_on_a_terminal_or_leaves_its_fence() -> None:
    found = review(*trees(file("`````"), file("`````", "\x1b[31m \u202e", "\u00fc \u65e5"), "a-b"))
    text = markdown(found, ["a-b"], "HEAD")
    assert "\n `````\n+\\x1b[31m \\u202e\n+\u00fc \u65e5\n``````````\n" in text


def test_markdown_is_bounded_and_says_so() -> None:
    files = {f"f{number}": file(*map(str, range(500))) for number in range(9)}
    text = markdown(review({"a-b": {}}, {"a-b": files}), ["a-b"], "HEAD")
    assert text.count("\n… and 101 more lines\n") == 9
    files = {f"f{number:03}": file(*["x" * 1000] * 300) for number in range(9)}
    text = markdown(review({"a-b": {}}, {"a-b": files}), ["a-b"], "HEAD")
    assert len(text.encode()) < MAX_BYTES + 100
    assert text.endswith("To see the other files, run `python -m hooks review` in a terminal.\n")


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        (ALL, "all renders"),
        (["vercel-python"], "vercel-python"),
        ([v for v in ALL if v.startswith("vercel-python")], "vercel-python (all)"),
        ([v for v in ALL if "-python" in v], "every python render"),
        ([v for v in ALL if "valkey" in v], "every render with +valkey"),
        (BASES, "every plain render"),
        (["vercel-python+s3", "strands-python"], "strands-python, vercel-python+s3"),
    ],
)
def test_a_set_of_renders_is_named_shortly(chosen: list[str], expected: str) -> None:
    assert words(chosen, ALL) == expected
