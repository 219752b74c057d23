"""The list of releases, the tags that are made from it, and the command that adds to it."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from hooks import releases, snapshots, weights
from hooks.releases import Release, ReleaseError, make_tags, next_version
from tests.conftest import ROOT
from tests.template.test_check import PROJECT, SOUND, build, keep_variants
from tests.template.test_hooks import Hooks, Result, hooks
from tests.updates.commands import bash
from tests.updates.history import commit, git

__all__ = ["hooks"]  # a fixture

ENTRY = "### Added\n\n- A new file."
SECTION = f"# What changes\n\n## 0.2.0\n\n{ENTRY}\n\n## 0.1.0\n\n- The first.\n"


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A template with one release, and a commit after it that is ready to be the next."""
    root = build(tmp_path_factory.mktemp("prepared") / "template", SOUND)
    (root / "hooks").mkdir()
    git(root, "init", "--quiet", "--initial-branch=main")
    commit(root, "First")
    write_list(root, f"0.1.0 {head(root)}\n")
    weights.write_last(root, "0.1.0", weights.weigh(root))
    (root / "CHANGELOG.md").write_text(SECTION)
    with pytest.MonkeyPatch.context() as patch:
        keep_variants(patch, "strands-python")
        snapshots.write(root, snapshots.rendered(root))
    commit(root, "Second")
    return root


@pytest.fixture
def root(prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """That template, for one test, which runs in it."""
    root = Path(shutil.copytree(prepared, tmp_path / "template", symlinks=True))
    keep_variants(monkeypatch, "strands-python")
    monkeypatch.chdir(root)
    return root


def write_list(root: Path, text: str) -> None:
    (root / releases.LIST).write_text(text)


def head(root: Path, ref: str = "HEAD") -> str:
    return git(root, "rev-parse", ref).strip()


def test_a_release_is_the_last_commit_without_its_tests(root: Path, hooks: Hooks) -> None:
    second = head(root)
    made = hooks("release", "0.2.0").out
    tagged = head(root, "0.2.0^0")
    assert made.startswith(f"0.2.0 is {tagged[:10]}\nto publish it, type  git push ")
    assert head(root, "0.2.0^0^") == second
    assert head(root, "0.1.0") == head(root, f"{second}~1")
    assert git(root, "diff", "--name-only", "--diff-filter=AM", second, "0.2.0") == ""
    dropped = git(root, "diff", "--name-only", second, "0.2.0").splitlines()
    assert dropped == git(root, "ls-files", "tests").splitlines()
    assert releases.releases(root)[-1] == Release("0.2.0", tagged)
    assert weights.read_last(root) == ("0.2.0", weights.weigh(root))
    assert git(root, "status", "--porcelain") == ""
    assert git(root, "log", "-1", "--format=%s %P") == f"Note release 0.2.0 {second} {tagged}\n"
    assert git(root, "tag", "-l", "--format=%(contents)", "0.2.0") == f"0.2.0\n\n{ENTRY}\n\n"
    assert hooks("release", "--tags") == Result(0, "", "")
    assert hooks("notes", "0.2.0").out == f"{ENTRY}\n"
    hooks("release", "0.2.0").refused(1, "0.2.0 is not greater than 0.2.0")
    hooks("review", "--against", "0.2.0").refused(2, "compare with the commit before it")


def test_linked_files_are_in_a_release(root: Path, hooks: Hooks) -> None:
    (root / "README.md").write_text(
        "[one](tests/one.md#a) [all](tests) [far](https://a.example/b)\n"
    )
    (root / "tests" / "one.md").write_text("[two](deep/two.txt) ![no](none.png)\n")
    (root / "tests" / "deep").mkdir()
    (root / "tests" / "deep" / "two.txt").write_text("2\n")
    (root / "tests" / "three.txt").write_text("3\n")
    commit(root, "Texts")
    hooks("release", "0.2.0")
    files = git(root, "ls-tree", "-r", "--name-only", "0.2.0", "tests").splitlines()
    assert files == ["tests/deep/two.txt", "tests/one.md"]


@pytest.fixture
def origin(root: Path, tmp_path: Path) -> Path:
    """Where that template is pushed to. Its changes have no version yet."""
    (root / "CHANGELOG.md").write_text(SECTION.replace("## 0.2.0", "## next"))
    commit(root, "A new file")
    git(tmp_path, "init", "--quiet", "--bare", "--initial-branch=main", "origin.git")
    git(root, "remote", "add", "origin", str(tmp_path / "origin.git"))
    git(root, "push", "--quiet", "origin", "main")
    return tmp_path / "origin.git"


def test_one_command_is_a_release(root: Path, origin: Path, tmp_path: Path, hooks: Hooks) -> None:
    hooks("release", "0.2.0", "--push")
    git(tmp_path, "clone", "--quiet", "--branch", "0.2.0", str(origin), "owner")
    assert "## 0.2.0\n" in (tmp_path / "owner" / "CHANGELOG.md").read_text()
    assert "next" not in (tmp_path / "owner" / "CHANGELOG.md").read_text()
    assert releases.section(tmp_path / "owner", "0.2.0") == ENTRY
    assert head(origin) == head(root)
    assert releases.releases(root)[-1] == Release("0.2.0", head(tmp_path / "owner"))
    assert notes_of("0.2.0", tmp_path) == [
        "release create 0.2.0 --verify-tag --latest --notes-file notes.md",
        *ENTRY.splitlines(),
    ]


def notes_of(tag: str, folder: Path) -> list[str]:
    """What the workflow of a tag types to GitHub, and the notes, in the clone `folder`/owner."""
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())
    (job,) = workflow["jobs"].values()
    path = folder / "commands"
    path.mkdir()
    (path / "gh").write_text('#!/bin/sh\necho "$@"; cat notes.md\n')
    (path / "uv").write_text(f'#!/bin/sh\nshift 2; PYTHONPATH={ROOT} exec {sys.executable} "$@"\n')
    for command in path.iterdir():
        command.chmod(0o755)
    script = "\n".join(step["run"] for step in job["steps"] if "run" in step)
    variables = {"PATH": f"{path}:{os.environ['PATH']}", "GITHUB_REF_NAME": tag}
    result = bash(script, folder / "owner", **variables)
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


def test_a_release_to_try_is_no_latest_one(root: Path, tmp_path: Path) -> None:
    (root / "CHANGELOG.md").write_text(SECTION.replace("## 0.2.0", "## 0.3.0rc1"))
    shutil.copytree(root, tmp_path / "owner", symlinks=True)
    assert "--prerelease" in notes_of("0.3.0rc1", tmp_path)[0]


def test_a_release_that_is_not_pushed_says_how_to(root: Path, origin: Path, hooks: Hooks) -> None:
    before = head(origin)
    shutil.rmtree(origin / "objects")
    hooks("release", "0.2.0", "--push").refused(
        1, "the push failed; try again  git push --atomic origin HEAD refs/tags/0.2.0"
    )
    assert before == head(root, "0.2.0^0^^")
    assert releases.releases(root)[-1].version == "0.2.0"


@pytest.mark.skipif(not shutil.which("ssh-keygen"), reason="it needs the package openssh-client")
def test_a_tag_is_signed_where_git_has_a_key(root: Path, hooks: Hooks, tmp_path: Path) -> None:
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    (tmp_path / "signers").write_text(f"ada@example.com {key.with_suffix('.pub').read_text()}")
    for name, value in {
        "gpg.format": "ssh",
        "user.signingKey": f"{key}.pub",
        "gpg.ssh.allowedSignersFile": str(tmp_path / "signers"),
    }.items():
        git(root, "config", name, value)
    hooks("release", "0.2.0")
    git(root, "verify-tag", "0.2.0")


@pytest.mark.parametrize(
    ("version", "reason"),
    [
        ("0.1.0", "0.1.0 is not greater than 0.1.0"),
        ("0.0.9", "is not greater than 0.1.0"),
        ("0.1", "is not greater than 0.1.0"),
        ("v0.2.0", "is not in the normal form of PEP 440: use 0.2.0"),
        ("0.2.0-rc1", "use 0.2.0rc1"),
        ("0.02", "use 0.2"),
        ("0.2.0\n", "use 0.2.0"),
        ("0.2.0+local", "is not for a release"),
        ("1!0.2.0", "is not for a release"),
        ("0.2.0.dev1", "is not for a release"),
        ("release-2026", "is not a PEP 440 version"),
        ("", "is not a PEP 440 version"),
        ("../../HEAD", "is not a PEP 440 version"),
        ("0.2.0; touch HACKED", "is not a PEP 440 version"),
        ("0.3.0", "CHANGELOG.md has no section 0.3.0"),
        ("0.2", "CHANGELOG.md has no section 0.2:"),
    ],
)
def test_a_version_that_cannot_be_is_refused(
    root: Path, version: str, reason: str, hooks: Hooks
) -> None:
    hooks("release", version).refused(1, reason)
    assert git(root, "tag") == ""
    assert git(root, "status", "--porcelain") == ""


def dirty(root: Path) -> None:
    (root / "notes.txt").touch()


def no_words(root: Path) -> None:
    text = SECTION.replace(f"{ENTRY}\n", "")
    (root / "CHANGELOG.md").write_text(text)
    commit(root, "Nothing to say")


def tagged_elsewhere(root: Path) -> None:
    git(root, "tag", "0.2.0", "HEAD~1")


def fault(root: Path) -> None:
    (root / PROJECT / "a.jinja").write_text("{{ anser }}\n")
    commit(root, "A fault")


def stale(root: Path) -> None:
    (root / PROJECT / "news.txt").write_text("new\n")
    commit(root, "A file that is in no snapshot")


def no_parts(root: Path) -> None:
    (root / "CHANGELOG.md").write_text(SECTION.replace("### Added\n\n", ""))
    commit(root, "An entry in no part")


def heavy(root: Path) -> None:
    path = root / PROJECT / "src" / "my_agent" / "agent.py"
    path.write_text(path.read_text() * 9)
    snapshots.write(root, snapshots.rendered(root))
    commit(root, "Nine times the code")


def dropped(root: Path) -> None:
    path = root / PROJECT / "README.md.jinja"
    path.rename(path.with_name("READ.md.jinja"))
    commit(root, "Another name")


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (dirty, "there are uncommitted changes: commit"),
        (no_words, "has no section 0.2.0"),
        (tagged_elsewhere, "the tag 0.2.0 exists already"),
        (fault, "run python -m hooks check"),
        (stale, "run python -m hooks snapshots"),
        (dropped, "run python -m hooks check"),
        (no_parts, "CHANGELOG.md needs parts in this order"),
        (heavy, "CHANGELOG.md does not say why src/ weighs more"),
    ],
)
def test_an_unready_state_is_not_released(
    root: Path, spoil: Callable[[Path], None], reason: str, hooks: Hooks
) -> None:
    spoil(root)
    before = git(root, "tag")
    hooks("release", "0.2.0").refused(1, reason)
    assert git(root, "tag") == before
    assert len(releases.releases(root)) == 1


def test_a_tag_is_never_moved(root: Path, hooks: Hooks) -> None:
    git(root, "tag", "0.1.0", "main")
    result = hooks("release", "--tags")
    result.refused(1, "the tag 0.1.0 is on ")
    result.refused(1, "tags never move")
    assert head(root, "0.1.0") == head(root, "main")


def test_an_annotated_tag_is_a_tag(root: Path, hooks: Hooks) -> None:
    git(root, "tag", "-a", "-m", "First", "0.1.0", "HEAD~1")
    assert hooks("release", "--tags") == Result(0, "", "")


def test_a_shallow_clone_names_the_fetch_command(root: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", "--depth=1", f"file://{root}", "shallow")
    listed = releases.releases(root)
    with pytest.raises(ReleaseError, match=r"0\.1\.0: .*git fetch --unshallow"):
        make_tags(tmp_path / "shallow", listed)
    assert git(tmp_path / "shallow", "tag") == ""
    assert releases.last_here(tmp_path / "shallow") is None
    assert releases.last_here(root) == listed[0]


@pytest.mark.parametrize("arguments", [[], ["0.2.0", "--tags"], ["--tags", "--push"]])
def test_a_version_or_the_tags(arguments: list[str], hooks: Hooks) -> None:
    hooks("release", *arguments).refused(2, "give a VERSION to release, or --tags")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("0.1.0\n", ":1 is not a version"),
        (f"0.1.0  {'a' * 40}\n", ":1 is not a version"),
        (f"0.1.0 {'A' * 40}\n", ":1 is not a version"),
        ("0.1.0 main\n", ":1 is not a version"),
        (f"0.1.0 {'a' * 40}\n\n", ":2 is not a version"),
        (f"0.2.0 {'a' * 40}\n0.1.0 {'a' * 40}\n", ":2: 0.1.0 is not greater than 0.2.0"),
        (f"v1 {'a' * 40}\n", ":1: 'v1' is not in the normal form"),
    ],
)
def test_a_list_that_is_wrong_says_where(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "hooks").mkdir()
    write_list(tmp_path, text)
    with pytest.raises(ReleaseError) as error:
        releases.releases(tmp_path)
    assert f"hooks/releases.txt{reason}" in str(error.value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("- A file.", "needs parts in this order"),
        ("### Fixed\n\n- A file.\n\n### Added\n\n- A file.", "needs parts in this order"),
        ("### Added\n\n- A file.\n\n### Added\n\n- A file.", "needs parts in this order"),
        ("### Other\n\n- A file.", "needs parts in this order"),
        ("- A file.\n\n### Added\n\n- A file.", "has an entry before '### Added'"),
        ("### Added\n\n### Fixed\n\n- A file.", "has no entry below '### Added'"),
    ],
)
def test_a_section_has_its_entries_in_parts(text: str, reason: str) -> None:
    with pytest.raises(ReleaseError, match=reason):
        releases.check_parts(text)


def test_a_section_may_have_an_introduction_and_a_table() -> None:
    releases.check_parts("Read it.\n\n### You have to\n\n- Move it:\n\n| a | b |\n|---|---|")


def test_a_prerelease_comes_before_its_release() -> None:
    first = [Release(next_version("1.0rc1", []), "a" * 40)]
    assert next_version("1.0", first) == "1.0"


def test_the_changelog_has_every_release() -> None:
    for listed in releases.releases(ROOT):
        assert releases.section(ROOT, listed.version)
    assert releases.releases(ROOT), "there is a first release"
