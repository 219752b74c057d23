"""Nobody needs --trust: the real command line, on a repository with tags, without a terminal."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hooks.loading import load
from hooks.rendering import ANSWERS_FILE
from hooks.snapshots import read
from hooks.variants import VARIANTS, answers_of
from tests.installed import clean_environment, uv

UNSAFE = 4
# The message and the answers file are one for all targets: the first is tried in a usual run.
FIRST, *OTHERS = [name for name in VARIANTS if "+" not in name]
TARGETS = [FIRST, *(pytest.param(name, marks=pytest.mark.full) for name in OTHERS)]

WHO = {
    f"GIT_{role}_{field}": value
    for role in ("AUTHOR", "COMMITTER")
    for field, value in {"NAME": "Ada", "EMAIL": "ada@example.com"}.items()
}


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )


def copier(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return run(sys.executable, "-m", "copier", *arguments, cwd=cwd)


def git(*arguments: str | Path, cwd: Path) -> None:
    result = run("git", *arguments, cwd=cwd)
    assert result.returncode == 0, result


def commit(folder: Path, message: str, tag: str | None = None) -> None:
    git("add", "--all", cwd=folder)
    git("commit", "--quiet", "--no-verify", "--message", message, cwd=folder)
    if tag:
        git("tag", tag, cwd=folder)


@pytest.fixture(scope="module")
def questions(template: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A template that asks what this one asks, and renders the answers only."""
    folder = tmp_path_factory.mktemp("questions")
    for path in (template / "copier.yml", *(template / "template").glob("*/*answers_file*")):
        copy = folder / path.relative_to(template)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, copy)
    return folder


@pytest.fixture(scope="module")
def releases(questions: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone of that template with two releases, of which the second adds a file.

    What needs trust stands in copier.yml. That whole projects update is tested in tests/updates.
    """
    folder = tmp_path_factory.mktemp("releases")
    source = Path(shutil.copytree(questions, folder / "source"))
    git("init", "--quiet", cwd=source)
    commit(source, "First", tag="v0.1.0")
    for language in ("python", "typescript"):
        (source / "template" / language / "NEWS.md").write_text("new\n")
    commit(source, "Second", tag="v0.2.0")
    git("clone", "--quiet", source, folder / "clone", cwd=folder)
    return folder / "clone"


def answers(variant: str) -> list[str]:
    return [
        part for name, value in answers_of(variant).items() for part in ("-d", f"{name}={value}")
    ]


def last_line(result: subprocess.CompletedProcess[str]) -> str:
    return result.stderr.strip().splitlines()[-1]


def commands(result: subprocess.CompletedProcess[str]) -> list[str]:
    """The indented lines of what Copier says: those to paste."""
    return [line.strip() for line in result.stderr.splitlines() if line.startswith("    ")]


def with_uv() -> dict[str, str]:
    """The environment of somebody who has uv on PATH."""
    environment = clean_environment()
    return {**environment, "PATH": f"{Path(uv()[0]).parent}{os.pathsep}{environment['PATH']}"}


@pytest.mark.slow
@pytest.mark.parametrize("variant", TARGETS)
def test_copy_update_and_recopy_work_without_trust(
    variant: str, releases: Path, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    data = answers(variant)
    copied = copier("copy", "--defaults", "-r", "v0.1.0", *data, releases, project, cwd=tmp_path)
    assert copied.returncode == 0, copied.stderr
    assert not (project / "NEWS.md").exists()

    git("init", "--quiet", cwd=project)
    commit(project, "Start")
    updated = copier("update", "--defaults", cwd=project)
    assert updated.returncode == 0, updated.stderr
    assert (project / "NEWS.md").read_text() == "new\n"
    assert "_commit: v0.2.0\n" in (project / ANSWERS_FILE).read_text()

    commit(project, "Update")
    recopied = copier("recopy", "--defaults", "--overwrite", cwd=project)
    assert recopied.returncode == 0, recopied.stderr
    status = run("git", "status", "--porcelain", cwd=project)
    assert status.stdout == "", "a copy of the same release changes nothing"


@pytest.mark.slow
@pytest.mark.parametrize("feature", ["_tasks: ['true']", "_jinja_extensions: [jinja2.ext.do]"])
def test_a_template_that_needs_trust_would_be_seen_here(
    feature: str, questions: Path, tmp_path: Path
) -> None:
    unsafe = Path(shutil.copytree(questions, tmp_path / "unsafe"))
    path = unsafe / "copier.yml"
    path.write_text(f"{feature}\n{path.read_text()}")
    result = copier("copy", "--defaults", unsafe, "project", cwd=tmp_path)
    assert result.returncode == UNSAFE
    assert "unsafe" in result.stderr


@pytest.mark.slow
def test_a_copy_below_a_link_warns_of_nothing(questions: Path, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to("disk")
    result = copier("copy", "--defaults", questions, tmp_path / "link" / "my-agent", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "Warning" not in result.stderr


def test_the_message_names_the_next_commands(questions: Path, tmp_path: Path) -> None:
    result = copier("copy", "--defaults", questions, "my-agent", cwd=tmp_path)
    start = 'git init && git add . && git commit -m "Start"    # updates need a commit'
    assert commands(result) == ["cd my-agent", "uv run my-agent chat", start]


@pytest.mark.slow
@pytest.mark.parametrize("folder", [pytest.param("my-agent", marks=pytest.mark.full), "My Agent!"])
def test_the_next_commands_work_when_pasted(folder: str, template: Path, tmp_path: Path) -> None:
    copied = copier("copy", "--defaults", template, folder, cwd=tmp_path)
    result = subprocess.run(
        ["bash", "-e", "-c", "\n".join(commands(copied))],
        cwd=tmp_path,
        env=with_uv() | WHO,
        input="My name is Ada.\nWhat is my name?\n",
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("My name is Ada.") >= 2, "it remembers the first turn"
    left = run("git", "status", "--porcelain", cwd=tmp_path / folder).stdout
    assert left == "", "the next update would be refused"


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.parametrize("variant", TARGETS)
def test_the_oldest_copier_that_is_allowed_renders_the_same(
    variant: str, template: Path, tmp_path: Path
) -> None:
    oldest = load(template).settings["_min_copier_version"]
    copier_then = [*uv(), "tool", "run", f"copier@{oldest}", "copy", "--defaults"]
    then = run(*copier_then, *answers(variant), template, tmp_path / "then", cwd=tmp_path)
    assert then.returncode == 0, then.stderr
    now = copier("copy", "--defaults", *answers(variant), template, tmp_path / "now", cwd=tmp_path)
    assert now.returncode == 0, now.stderr
    assert read(tmp_path / "then") == read(tmp_path / "now")


@pytest.mark.slow
def test_the_message_quotes_a_folder_with_a_space(questions: Path, tmp_path: Path) -> None:
    result = copier("copy", "--defaults", questions, "My Agent!", cwd=tmp_path)
    assert "cd 'My Agent!'\n" in result.stderr


def test_without_a_terminal_it_names_the_missing_answers(questions: Path, tmp_path: Path) -> None:
    result = copier("copy", questions, "project", cwd=tmp_path)
    assert result.returncode == 1
    assert "Use `--defaults` and/or `--data`" in last_line(result)
    assert not (tmp_path / "project").exists()


def test_a_wrong_answer_ends_with_the_reason(questions: Path, tmp_path: Path) -> None:
    wrong = "project_name=my-agent\nfoo"
    result = copier("copy", "--defaults", "-d", wrong, questions, "project", cwd=tmp_path)
    assert result.returncode == 1
    assert "like my-agent: a letter, then" in last_line(result)
    assert not (tmp_path / "project").exists()
