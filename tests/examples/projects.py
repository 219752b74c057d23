"""The projects of the examples: copied from the last release, changed by an owner, and updated."""

import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from hooks import examples
from hooks.check_history import past
from hooks.releases import releases
from hooks.rendering import LEFTOVERS
from tests.conformance.server import Server
from tests.conformance.targets import Target
from tests.conftest import ROOT
from tests.installed import NODE, NPM, clean_environment, environment, packages, same
from tests.stores import forks
from tests.stores.servers import valkey_server
from tests.stores.stores import PATIENT
from tests.updates.history import NEWEST, History, commit, copy, git, update
from tests.updates.own_tests import link, tree_of

README = Path("README.md")  # an example adds to its beginning
MARKER = b"<<<<<<< before updating"


def target_of(name: str) -> str:
    return str(examples.answers_of(ROOT, name)["target"])


def updated(history: History, name: str) -> Path:
    """An example that began at the last release and is updated to the working tree."""
    return history.once(f"examples/{name}", lambda folder: live(history, name, folder))


def plain(history: History, name: str) -> Path:
    """What the template has for an example: a copy of the working tree, without an owner."""
    answers = examples.answers_of(ROOT, name)
    return history.once(
        f"examples/{name}-plain", lambda folder: copy(history.template, folder, NEWEST, answers)
    )


def fresh(history: History, name: str) -> Path:
    """The same with the changes of the owner."""

    def make(folder: Path) -> None:
        shutil.copytree(plain(history, name), folder, symlinks=True)
        for change in examples.changes_of(ROOT, name):
            examples.apply(ROOT, name, change, folder)

    return history.once(f"examples/{name}-fresh", make)


def live(history: History, name: str, project: Path) -> None:
    """Copy, change and update a project, and make what the release had no place for afterwards."""
    last, answers = releases(ROOT)[-1], examples.answers_of(ROOT, name)
    copy(history.template, project, last.version, known(last.commit, answers))
    changes, newest = examples.changes_of(ROOT, name), plain(history, name)
    later = [change for change in changes if not fits(name, change, project, newest)]
    assert len(later) < len(changes)
    commit(project, "What we changed")
    update(project, **{key: value for key, value in answers.items() if key != "project_name"})
    assert git(project, "diff", "--name-only", "--diff-filter=U") == "", "conflicts"
    tree = tree_of(project)
    assert [path for path in tree if path.endswith(".rej")] == []
    assert [path for path, data in tree.items() if MARKER in data.splitlines()] == []
    commit(project, "Updated")
    for change in later:
        examples.apply(ROOT, name, change, project)
    commit(project, "What we use of the new version")
    assert git(project, "status", "--porcelain") == ""


def known(commit: str, answers: dict[str, Any]) -> dict[str, Any]:
    """The answers that a release offers; the update brings the others."""
    found: dict[str, Any] = {}
    with past(ROOT, commit) as template:
        for question, answer in answers.items():
            if question in template.asked:
                choices = {value for value, _ in template.choices(question, {})}
                if isinstance(answer, list):
                    found[question] = [one for one in answer if one in choices]
                elif not choices or answer in choices:
                    found[question] = answer
    return found


def fits(name: str, change: Path, project: Path, newest: Path) -> bool:
    """Make a change in the project of a release; False if only the newest template has its place.

    That is a file or a folder that the release lacks, a file that the owner of an example has
    rewritten from its newest text, or the lines that a patch is for.
    """
    target = examples.target_of(change)
    if any((newest / it).exists() > (project / it).exists() for it in (target, target.parent)):
        return False
    is_rewritten = change == target and change != README and (newest / target).exists()
    if is_rewritten and not same(newest / target, project / target):
        return False
    try:
        examples.apply(ROOT, name, change, project)
    except examples.ExampleError:
        return False
    return True


def lived_in(history: History, name: str, folder: Path) -> Path:
    """An updated example that can be run, for one test, with the settings that it suggests."""
    project = folder / name
    leave = shutil.ignore_patterns(*LEFTOVERS)
    shutil.copytree(updated(history, name), project, symlinks=True, ignore=leave)
    link(project, target_of(name))
    shutil.copy2(project / ".env.example", project / ".env")
    return project


def command(project: Path, *words: str) -> list[str]:
    """A command of an example, such as `chat`."""
    if (project / "package.json").exists():
        return [str(NODE), str(project / "src" / "main.ts"), *words]
    return [str(project / ".venv" / "bin" / project.name), *words]


def run(project: Path, *words: str, typed: str = "", **settings: str) -> str:
    """Run a command of an example, and return what it writes. It has to work."""
    variables = clean_environment() | settings
    # As `uv run` does.
    variables["PATH"] = os.pathsep.join([str(project / ".venv" / "bin"), variables["PATH"]])
    done = forks.run(command(project, *words), project, variables, typed=typed)
    assert done.returncode == 0, done.stdout
    return done.stdout


def lint(project: Path) -> list[list[str]]:
    """The commands with which CI of a project checks its sources."""
    if (project / "package.json").exists():
        return [[*NPM, "run", "lint"]]
    shared = environment(target_of(project.name))
    ruff = str(shared / ".venv" / "bin" / "ruff")
    mypy = [str(project / ".venv" / "bin" / "python"), "-m", "mypy"]
    return [
        [ruff, "check", "--no-cache"],
        [ruff, "format", "--check", "--no-cache"],
        [*mypy, "--cache-dir", str(shared / ".mypy_cache")],
    ]


def built(history: History, project: Path) -> None:
    """Build the page in `widget/` of a project, as its README says."""

    def make(folder: Path) -> None:
        shutil.copytree(project / "widget", folder)
        (folder / "node_modules").symlink_to(packages((folder / "package.json").read_bytes()))
        build = [*NPM, "run", "build"]
        done = subprocess.run(
            build, cwd=folder, env=clean_environment(), capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr

    shutil.copytree(history.once("examples/widget", make) / "dist", project / "widget" / "dist")


@dataclass(frozen=True)
class Replica(Target):
    """A target whose project is that of an example."""

    folder: Path = Path()

    def project(self) -> Path:
        return self.folder


@contextmanager
def encyclopedia() -> Iterator[str]:
    """The address of an encyclopedia that has an article of every title."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            urls = {"desktop": {"page": f"https://encyclopedia.example{self.path}"}}
            title = self.path.removeprefix("/")
            article = {"title": title, "extract": "It keeps heat.", "content_urls": urls}
            body = json.dumps(article).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        threading.Thread(target=http.serve_forever, args=(0.05,), daemon=True).start()
        yield f"http://127.0.0.1:{http.server_port}"
        http.shutdown()


@contextmanager
def replicas(project: Path, number: int, **own: str) -> Iterator[list[Server]]:
    """Servers of a project whose sessions are in one Valkey, without a model."""
    target = Replica(
        project.name, "", lambda it: command(it, "serve"), lambda _: {}, folder=project
    )
    with valkey_server(project.parent / "valkey") as (host, port), ExitStack() as stack:
        settings = {"SECRETS_VALKEY_SESSIONS": f"valkey://{host}:{port}", **own}
        settings["STORE_TIMEOUT_SECONDS"] = str(PATIENT)
        servers = [Server(target, project, None, settings) for _ in range(number)]
        for server in servers:
            stack.callback(server.stop)
        yield servers
