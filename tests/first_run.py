"""What an owner does first, on the system that this runs on: `python -m tests.first_run [TARGET]`.

A project of the last release is updated to the working tree, installed, linted, tested, talked to
and served. It needs uv, git and the network, and neither a shell nor links, so Windows runs it.
"""

import argparse
import json
import os
import platform
import re
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

from hooks.releases import releases
from hooks.variants import TARGETS
from tests.conftest import ROOT
from tests.installed import AGENTS, IS_POSIX, NODE, NPM, clean_environment, python_for, uv
from tests.updates.edits import OUR_PROMPT, PROMPT
from tests.updates.history import History, commit, git, update

# With bytes that cp1252 does not know, so that it cannot carry them unseen.
LINES = "Hello … 👍\nuse word_count: one two three\n"
ANSWERS = ('Now you said: "Hello … 👍"', "The tool answered: 3")
MARK = b"\n<<<<<<< before updating"
LISTENING = re.compile(r"Listening on http://[0-9.]+:(\d+)")


def agent(project: Path) -> list[str]:
    """The command line of a project, as one process."""
    if (project / "package.json").exists():
        return [str(NODE), "src/main.ts"]
    python = project / ".venv" / ("bin/python" if IS_POSIX else "Scripts/python.exe")
    (main,) = (project / "src").glob("*/main.py")
    return [str(python), "-c", f"from {main.parent.name}.main import cli; cli()"]


def run(project: Path, *command: str, typed: str = "", **variables: str) -> str:
    """Run a command in a project, and return what it prints. Raises CalledProcessError."""
    done = subprocess.run(
        command,
        cwd=project,
        env=clean_environment() | variables,
        input=typed,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        timeout=600,
    )
    if done.returncode:
        print(done.stdout)
        done.check_returncode()
    return done.stdout


def chat(project: Path, **variables: str) -> None:
    """Send two prompts from a pipe."""
    said = run(project, *agent(project), "chat", typed=LINES, **variables)
    assert all(answer in said for answer in ANSWERS), said


@contextmanager
def serving(
    project: Path, *words: str, **variables: str
) -> Iterator[tuple["subprocess.Popen[str]", int]]:
    """Serve a project: the process, which is killed at the end, and its port."""
    command = [*agent(project), "serve", *words]
    given = clean_environment() | {"PORT": "0", "PYTHONUNBUFFERED": "1"} | variables
    process = subprocess.Popen(
        command,
        cwd=project,
        env=given,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        encoding="utf-8",
    )
    try:
        found = next(filter(None, map(LISTENING.search, process.stdout or ())), None)
        assert found, "it did not start"
        yield process, int(found[1])
    finally:
        process.kill()
        process.communicate()


def ask(port: int) -> None:
    """Send one prompt over HTTP."""
    headers = {"Accept": "application/json"}
    body = json.dumps({"prompt": "…"}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/invocations", body, headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        reply = json.load(answer)
    assert reply["turn"] == 1, reply
    assert "…" in reply["reply"], reply


def try_out(project: Path) -> None:
    """Do what the README of a project says, with an offline model."""
    if (project / "package.json").exists():
        run(project, *NPM, "install", "--no-audit", "--no-fund")
        run(project, *NPM, "run", "lint")
        run(project, *NPM, "test")
    else:
        python = python_for(project)
        run(project, *uv(), "sync", "--python", python)
        for words in (["ruff", "check"], ["ruff", "format", "--check"], ["mypy"], ["pytest"]):
            run(project, *uv(), "run", "--python", python, *words)
    run(project, *agent(project), "check")
    chat(project)
    with serving(project) as (process, port):
        ask(port)
        process.terminate()
        code = process.wait(60)
        assert code == 0 or not IS_POSIX, f"serve ended with {code}"


def main() -> None:
    """Try each of the targets that are named, or all."""
    parser = argparse.ArgumentParser(prog="python -m tests.first_run")
    parser.add_argument("targets", nargs="*", default=TARGETS)
    given = parser.parse_args()
    for name in ("AUTHOR_NAME", "AUTHOR_EMAIL", "COMMITTER_NAME", "COMMITTER_EMAIL"):
        os.environ.setdefault(f"GIT_{name}", "test@example.com")
    node = run(ROOT, str(NODE), "--version").strip()
    python, copier = platform.python_version(), version("copier")
    print(f"{platform.platform()}, Python {python}, Node {node}, Copier {copier}", flush=True)
    last = releases(ROOT)[-1].version
    # Windows does not delete what is still open.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        history = History(Path(folder).resolve() / "history")
        for target in given.targets:
            project = history.project(history.folder / "it's mine" / target, last, target)
            (agent_file,) = (project / name for name in AGENTS if (project / name).exists())
            text = agent_file.read_bytes()
            agent_file.write_bytes(text.replace(PROMPT.encode(), OUR_PROMPT.encode()))
            commit(project, "Another prompt")
            update(project)
            commit(project, "Updated")
            paths = git(project, "ls-files").splitlines()
            marked = [path for path in paths if MARK in (project / path).read_bytes()]
            assert not marked, f"conflicts in {marked}"
            assert OUR_PROMPT.encode() in agent_file.read_bytes()
            try_out(project)
            print(
                f"{target}: updated from {last}, linted, tested, talked to and served", flush=True
            )


if __name__ == "__main__":
    main()
