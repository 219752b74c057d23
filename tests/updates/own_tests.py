"""The tests that a project brings, run in what an update made of it: once for each tree."""

import hashlib
import subprocess
from pathlib import Path

from hooks.rendering import ANSWERS_FILE
from tests.conftest import ROOT
from tests.installed import NPM, clean_environment, installed
from tests.updates.history import History

SECONDS = 120


def tree_of(project: Path) -> dict[str, bytes]:
    """Every file of a project that Git is told of, as bytes."""
    return {
        path.relative_to(project).as_posix(): path.read_bytes()
        for path in sorted(project.rglob("*"))
        if path.is_file()
        and not {".git", "node_modules", "__pycache__"} & set(path.relative_to(project).parts)
    }


def pass_once(history: History, variant: str, project: Path) -> None:
    """Run the tests of an updated project, unless such a tree has passed them in this run.

    They run with what is installed for `variant`: no edit of an owner needs another package.
    """
    digest = hashlib.sha256()
    for path, data in tree_of(project).items():
        if path != ANSWERS_FILE:
            digest.update(b"\0".join([path.encode(), str(len(data)).encode(), data]))
    history.once(f"passed/{digest.hexdigest()}", lambda folder: run(folder, project, variant))


def link_packages(project: Path, place: Path) -> None:
    """Let a project use the packages that are installed in `place`, without Git seeing it."""
    link = project / "node_modules"
    if not link.is_symlink():
        link.symlink_to((place / "node_modules").resolve())
        # The project's own rule is for a folder, which a link is not.
        with (project / ".git" / "info" / "exclude").open("a") as file:
            file.write("node_modules\n")


def run(folder: Path, project: Path, variant: str) -> None:
    """Run the tests of `project`; make `folder` when they pass."""
    environment = clean_environment()
    place = installed(variant)
    if (project / "package.json").exists():
        link_packages(project, place)
        command = [*NPM, "test"]
        block = ROOT / "tests" / "no_network.mjs"
        environment["NODE_OPTIONS"] = f"--import={block.as_uri()}"
    else:
        command = [str(place / ".venv" / "bin" / "python"), "-m", "pytest", "-q"]
        command += ["-p", "no_network", "-p", "no:cacheprovider"]
        # Before what is installed, which is a render of the working tree.
        environment["PYTHONPATH"] = f"{project / 'src'}:{ROOT / 'tests'}"
    result = subprocess.run(
        command,
        cwd=project,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
    )
    assert result.returncode == 0, result.stdout
    folder.mkdir()
