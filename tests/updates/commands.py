"""What an owner types: the real command line, and the commands that Copier and the README name."""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import yaml

from tests.conftest import ROOT
from tests.installed import NODE, NPM, clean_environment, uv


def copier(*arguments: str | Path, cwd: Path) -> str:
    """Run Copier's command line without a terminal and without trust; return what it says."""
    result = subprocess.run(
        [sys.executable, "-m", "copier", *arguments],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    assert "Warning" not in result.stderr
    return result.stderr


def programs(folder: Path) -> str:
    """Write the programs that owners type into a new folder, and return the PATH with them."""
    commands = {"uvx": [sys.executable, "-m"], "uv": uv(), "npm": NPM, "npx": [*NPM, "exec"]}
    folder.mkdir(parents=True)
    for name, command in commands.items():
        (folder / name).write_text(f'#!/bin/sh\nexec {" ".join(command)} "$@"\n')
        (folder / name).chmod(0o755)
    return os.pathsep.join([str(folder), str(NODE.parent), clean_environment()["PATH"]])


def bash(script: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a script as GitHub runs one that says `shell: bash`."""
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
        cwd=cwd,
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )


def named(text: str, start: str) -> str:
    """The command in `text` that begins like that: a line of its own, or between backticks."""
    match = re.search(rf"(?m)^ +({re.escape(start)}.*)$|`({re.escape(start)}[^`]*)`", text)
    assert match, f"there is no {start} in {text}"
    return match[1] or match[2]


def mend(project: Path, files: Sequence[str], release: str, program: str) -> None:
    """Mend conflicts in files with the command that CHANGELOG.md has for them below a release."""
    _, _, text = (ROOT / "CHANGELOG.md").read_text("utf-8").partition(f"\n## {release}\n")
    command = named(text, f"{program} -").replace("FILES", " ".join(files))
    path = os.pathsep.join([str(NODE.parent), os.environ["PATH"]])
    result = bash(command, project, PATH=path)
    assert result.returncode == 0, result.stderr


def steps(project: Path, workflow: str) -> list[dict[str, str]]:
    """The steps of the one job of a rendered workflow."""
    path = project / ".github" / "workflows" / workflow
    (job,) = yaml.safe_load(path.read_text("utf-8"))["jobs"].values()
    found: list[dict[str, str]] = job["steps"]
    return found


def script(project: Path, workflow: str, word: str) -> str:
    """The one script in a rendered workflow that has `word` in it."""
    (found,) = [step["run"] for step in steps(project, workflow) if word in step.get("run", "")]
    return found
