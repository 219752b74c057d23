"""How long `copier copy` and `copier update` take, and what a project needs on disk."""

import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hooks.rendering import render, without_git
from hooks.variants import TARGETS, answers_of
from hooks.without_tests import commit_without_tests
from tests.benchmarks.figures import Bench, Samples
from tests.conftest import ROOT
from tests.installed import NPM, clean_environment, python_for, uv
from tests.stores.servers import connectable, free_port, wait_for
from tests.updates.history import commit, git

ANSWERS = {
    "plain": (),
    "+valkey": ("session_store=valkey",),
    "+valkey+agentcore": ("session_store=valkey", "long_term_memory=agentcore"),
}


def seconds(command: str, *arguments: str | Path, cwd: Path | None = None) -> float:
    """The wall time of one command of Copier with the default answers."""
    # Without bytecode Copier's own start takes twice as long and hides the rest.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    start = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "copier", command, "-q", "--defaults", *map(str, arguments)],
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        check=True,
    )
    return time.perf_counter() - start


def empty(folder: Path) -> Path:
    """A template that renders its answers only."""
    (folder / "template").mkdir(parents=True)
    (folder / "copier.yml").write_text("_subdirectory: template\n")
    name = "{{ _copier_conf.answers_file }}.jinja"
    (folder / "template" / name).write_text("{{ _copier_answers|to_nice_yaml }}")
    return folder


def copy(bench: Bench) -> Samples:
    """Seconds of `copier copy`."""
    with without_git(ROOT) as full, tempfile.TemporaryDirectory() as parent:
        folder = Path(parent)
        bare = empty(folder / "empty")
        samples: Samples = {"empty": [], **{name: [] for name in ANSWERS}}
        for number in bench.numbers():
            for name in samples:
                answers = [word for it in ANSWERS.get(name, ()) for word in ("-d", it)]
                template = bare if name == "empty" else full
                taken = seconds("copy", *answers, template, folder / f"{name}-{number}")
                samples[name] += [taken] if number else []
    return samples


def update(bench: Bench) -> Samples:
    """Seconds of `copier update` to one more line, from a folder and from a Git server."""
    samples: Samples = {}
    with tempfile.TemporaryDirectory() as parent, served(Path(parent)) as address:
        folder = Path(parent)
        git(ROOT, "clone", "--quiet", "--no-local", "--no-tags", str(ROOT), str(folder / "ours"))
        with without_git(ROOT) as tree:
            shutil.copytree(tree, folder / "ours", symlinks=True, dirs_exist_ok=True)
        empty(folder / "empty")
        git(folder / "empty", "init", "--quiet")
        for name in ("empty", "ours"):
            commit(folder / name, "Before")
            git(folder / name, "tag", "1", commit_without_tests(folder / name, "1"))
            (folder / name / "template" / "python" / "NEWS.md").parent.mkdir(exist_ok=True)
            (folder / name / "template" / "python" / "NEWS.md").write_text("A line.\n")
            commit(folder / name, "After")
            git(folder / name, "tag", "2", commit_without_tests(folder / name, "2"))
        ways = {"": folder.as_posix(), " served": address}
        for number in bench.numbers():
            for name, (way, place) in itertools.product(("empty", "ours"), ways.items()):
                project = folder / f"{name}{way}-{number}"
                seconds("copy", "-r", "1", f"{place}/{name}", project)
                git(project, "init", "--quiet")
                commit(project, "Start")
                taken = seconds("update", cwd=project)
                samples.setdefault(f"{name}{way}", []).extend([taken] if number else [])
    return samples


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a Git server that has the repositories in `folder`."""
    port = free_port()
    command = ["git", "daemon", "--export-all", f"--base-path={folder}", f"--port={port}"]
    daemon = subprocess.Popen([*command, "--listen=127.0.0.1", str(folder)])
    try:
        wait_for("the Git server", lambda: connectable(("127.0.0.1", port)))
        yield f"git://127.0.0.1:{port}"
    finally:
        daemon.terminate()
        daemon.wait()


def disk(bench: Bench) -> Samples:
    """Megabytes of the packages that a plain render runs with, development tools left out."""
    samples: Samples = {}
    for target in TARGETS:
        bench.progress(target)
        with tempfile.TemporaryDirectory() as folder:
            project = Path(folder) / "project"
            render(ROOT, answers_of(target), project)
            if (project / "package.json").exists():
                packages = project / "node_modules"
                command = [*NPM, "install", "--omit=dev", "--silent", "--no-audit"]
            else:
                packages = project / ".venv"
                command = [*uv(), "sync", "--no-dev", "-q", "--python", python_for(project)]
            environment = {**clean_environment(), "UV_COMPILE_BYTECODE": "1"}
            subprocess.run(command, cwd=project, env=environment, check=True)
            sizes = [path.lstat().st_size for path in packages.rglob("*") if path.is_file()]
            samples[target] = [sum(sizes) / 1e6]
    return samples
