"""The examples: a folder of tests/examples has only an owner's changes to a rendered project.

Each file goes to the same path in the project. A file `X.patch` is applied to the file `X` of the
template. README.md replaces the first line of the rendered README.md.
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
    """An example cannot be built or published. The text is one line with the reason."""


def names(root: Path) -> list[str]:
    """Return the names of the examples, sorted."""
    return sorted(path.parent.name for path in (root / FOLDER).glob(f"*/{ANSWERS}"))


def answers_of(root: Path, name: str) -> dict[str, Any]:
    """Return the answers of an example."""
    answers: dict[str, Any] = yaml.safe_load((root / FOLDER / name / ANSWERS).read_text("utf-8"))
    return answers


def changes_of(root: Path, name: str) -> list[Path]:
    """Return the files of an example, relative to its folder."""
    return [path for path in files_of(root / FOLDER / name) if path != Path(ANSWERS)]


def target_of(change: Path) -> Path:
    """Return the file of a project to which a change applies."""
    return change.with_suffix("") if change.suffix == PATCH else change


def apply(root: Path, name: str, change: Path, project: Path) -> None:
    """Apply a change to a project. Raises ExampleError if a patch does not fit."""
    source = root / FOLDER / name / change
    target = project / target_of(change)
    if change == Path("README.md"):
        own = source.read_text("utf-8")
        rendered = target.read_text("utf-8")
        title, _, rest = rendered.partition("\n")
        if not own.startswith(f"{title}\n"):
            raise ExampleError(f"{FOLDER / name / change} does not begin with {title!r}")
        target.write_text(own + rest, "utf-8", newline="\n")
    elif change.suffix == PATCH:
        # In a folder of another repository, git would silently skip the files.
        environment = os.environ | {"GIT_CEILING_DIRECTORIES": str(project.resolve().parent)}
        command = ["git", "apply", str(source.resolve())]
        result = subprocess.run(
            command, cwd=project, env=environment, capture_output=True, text=True
        )
        if result.returncode:
            raise ExampleError(f"{FOLDER / name / change}: {' '.join(result.stderr.split())}")
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)


def make(root: Path, name: str, dest: Path, source: str) -> None:
    """Render an example from the working tree, with its owner's changes, into `dest`.

    Its answers file names `source`, from which `copier update` updates it.
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
    """Return the release of the working tree. Raises ExampleError if it is not a release."""
    tag = git(root, "describe", "--tags", "--exact-match").stdout.decode().strip()
    if not tag or read_or_refuse(root, "status", "--porcelain"):
        raise ExampleError("only a release can be published: check out its tag without changes")
    return tag


def publish(project: Path, url: str, version: str) -> bool:
    """Push a project to the repository at `url`, as a commit on top of its branch.

    Returns False, without a commit, if nothing has changed.
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
