"""How long `copier copy` takes, beside a copy of an empty template, and what it needs on disk."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from hooks.rendering import render, without_git
from hooks.variants import TARGETS, answers_of
from tests.benchmarks.figures import Bench, Samples
from tests.conftest import ROOT
from tests.installed import NPM, clean_environment, python_for, uv

ANSWERS = {
    "plain": (),
    "+valkey": ("session_store=valkey",),
    "+valkey+agentcore": ("session_store=valkey", "long_term_memory=agentcore"),
}


def seconds(template: Path, dest: Path, answers: tuple[str, ...] = ()) -> float:
    """The wall time of one `copier copy` with `answers` and defaults for the rest."""
    # Without bytecode Copier's own start takes twice as long and hides the rest.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-m", "copier", "copy", "-q", "--defaults"]
    command += [word for answer in answers for word in ("-d", answer)]
    start = time.perf_counter()
    subprocess.run(
        [*command, str(template), str(dest)],
        env=environment,
        stdin=subprocess.DEVNULL,
        check=True,
    )
    return time.perf_counter() - start


def copy(bench: Bench) -> Samples:
    """Seconds of `copier copy`."""
    with without_git(ROOT) as full, tempfile.TemporaryDirectory() as parent:
        folder = Path(parent)
        (folder / "empty" / "template").mkdir(parents=True)
        (folder / "empty" / "copier.yml").write_text("_subdirectory: template\n")
        samples: Samples = {"empty": [], **{name: [] for name in ANSWERS}}
        for number in bench.numbers():
            for name in samples:
                template = folder / "empty" if name == "empty" else full
                taken = seconds(template, folder / f"{name}-{number}", ANSWERS.get(name, ()))
                samples[name] += [taken] if number else []
    return samples


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
