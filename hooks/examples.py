"""The examples: tests/examples has what an owner changed in a project, and nothing else of it.

Of each file there a project gets the same path: as it is, or, if it ends in `.patch`, as lines that
are patched into a file of the template. README.md takes the place of the first line of its own.
"""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import yaml

from hooks.committed import git, read_or_refuse
from hooks.rendering import ANSWERS_FILE, files_of, render

FOLDER = Path("tests") / "examples"
ANSWERS = "answers.yml"
PATCH = ".patch"
SOURCE = "gh:org/agent-template"
AUTHOR = {
    "user.name": "github-actions[bot]",
    "user.email": "41898282+github-actions[bot]@users.noreply.github.com",
}


class ExampleError(Exception):
    """An example cannot be made or published; the text is one line that says why."""


def names(root: Path) -> list[str]:
    """The examples, sorted."""
    return sorted(path.parent.name for path in (root / FOLDER).glob(f"*/{ANSWERS}"))


def answers_of(root: Path, name: str) -> dict[str, Any]:
    """The answers with which an example is rendered."""
    answers: dict[str, Any] = yaml.safe_load((root / FOLDER / name / ANSWERS).read_text("utf-8"))
    return answers


def changes_of(root: Path, name: str) -> list[Path]:
    """The changes of an owner: the files of an example, relative to its folder."""
    return [path for path in files_of(root / FOLDER / name) if path != Path(ANSWERS)]


def target_of(change: Path) -> Path:
    """The file of a project that a change is in."""
    return change.with_suffix("") if change.suffix == PATCH else change


def apply(root: Path, name: str, change: Path, project: Path) -> None:
    """Make a change in a project. Raises ExampleError when a patch does not fit."""
    source, target = root / FOLDER / name / change, project / target_of(change)
    if change == Path("README.md"):
        own, rendered = source.read_text("utf-8"), target.read_text("utf-8")
        title, _, rest = rendered.partition("\n")
        if not own.startswith(f"{title}\n"):
            raise ExampleError(f"{FOLDER / name / change} does not begin with {title!r}")
        target.write_text(own + rest, "utf-8", newline="\n")
    elif change.suffix == PATCH:
        # In a folder of another repository git would skip the files without a word.
        environment = os.environ | {"GIT_CEILING_DIRECTORIES": str(project.resolve().parent)}
        command = ["git", "apply", str(source.resolve())]
        done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True)
        if done.returncode:
            raise ExampleError(f"{FOLDER / name / change}: {' '.join(done.stderr.split())}")
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)


def make(root: Path, name: str, dest: Path, source: str) -> None:
    """Render an example from the working tree, with its owner's changes, into `dest`.

    Its answers file says that it comes from `source`, so that it can be updated from there.
    """
    render(root, answers_of(root, name), dest)
    for change in changes_of(root, name):
        apply(root, name, change, dest)
    described = read_or_refuse(root, "describe", "--tags", "--always").decode().strip()
    origin = yaml.safe_dump({"_commit": described, "_src_path": source})
    recorded = dest / ANSWERS_FILE
    first, _, rest = recorded.read_text("utf-8").partition("\n")
    recorded.write_text(f"{first}\n{origin}{rest}", "utf-8", newline="\n")


def released(root: Path) -> str:
    """The release that the working tree is. Raises ExampleError when it is none."""
    tag = git(root, "describe", "--tags", "--exact-match").stdout.decode().strip()
    if not tag or read_or_refuse(root, "status", "--porcelain"):
        raise ExampleError("only a release is published: check out its tag, and change nothing")
    return tag


def publish(project: Path, url: str, version: str) -> bool:
    """Push a project to the repository at `url`, as one commit on top of those that it has.

    Returns whether something has changed since the last one.
    """
    with tempfile.TemporaryDirectory(prefix="example-") as temporary:
        folder = Path(temporary) / "repository"
        read_or_refuse(Path(temporary), "clone", "--quiet", "--", url, folder.name)
        read_or_refuse(folder, "rm", "-r", "--quiet", "--ignore-unmatch", ".")
        shutil.copytree(project, folder, symlinks=True, dirs_exist_ok=True)
        read_or_refuse(folder, "add", "--all")
        if not read_or_refuse(folder, "status", "--porcelain"):
            return False
        author = [part for name, value in AUTHOR.items() for part in ("-c", f"{name}={value}")]
        message = f"Version {version} of the template"
        read_or_refuse(folder, *author, "commit", "--quiet", "--message", message)
        read_or_refuse(folder, "push", "--quiet", "origin", "HEAD")
        return True
