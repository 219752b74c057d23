"""The tests that a project brings, run in what an update made of it: once for each tree."""

import hashlib
import os
from pathlib import Path

from hooks.rendering import ANSWERS_FILE
from tests.conftest import ROOT
from tests.installed import NPM, clean_environment, environment, link_environment
from tests.stores import forks
from tests.updates.history import History

LEFT_OUT = {".git", ".venv", "node_modules", "__pycache__"}


def tree_of(project: Path) -> dict[str, bytes]:
    """Every file of a project that Git is told of, as bytes."""
    return {
        path.relative_to(project).as_posix(): path.read_bytes()
        for path in sorted(project.rglob("*"))
        if path.is_file() and not LEFT_OUT & set(path.relative_to(project).parts)
    }


def pass_once(history: History, target: str, project: Path) -> None:
    """Run the tests of an updated project, unless such a tree has passed them in this run."""
    digest = hashlib.sha256()
    for path, data in tree_of(project).items():
        if path != ANSWERS_FILE:
            digest.update(b"\0".join([path.encode(), str(len(data)).encode(), data]))
    history.once(f"passed/{digest.hexdigest()}", lambda folder: run(folder, project, target))


def link(project: Path, target: str) -> None:
    """Let a project run with what is installed for its target, without Git seeing it."""
    link_environment(project, environment(target))
    exclude = project / ".git" / "info" / "exclude"
    # The project's own rule for node_modules is for a folder, which a link is not.
    exclude.write_text("node_modules\n.venv\n")


def run(folder: Path, project: Path, target: str, *words: str) -> None:
    """Run the tests of `project`, with these options of pytest; make `folder` when they pass."""
    link(project, target)
    variables = clean_environment()
    if (project / "package.json").exists():
        command = [*NPM, "test"]
        block = ROOT / "tests" / "support" / "no_network.mjs"
        variables["NODE_OPTIONS"] = f"--import={block.as_uri()}"
    else:
        command = [str(project / ".venv" / "bin" / "python"), "-m", "pytest", "-q", *words]
        command += ["-p", "no_network", "-p", "no:cacheprovider"]
        variables["PYTHONPATH"] = str(ROOT / "tests" / "support")
        # As `uv run` does.
        variables["PATH"] = os.pathsep.join([str(project / ".venv" / "bin"), variables["PATH"]])
    result = forks.run(command, project, variables)
    assert result.returncode == 0, result.stdout
    folder.mkdir()
