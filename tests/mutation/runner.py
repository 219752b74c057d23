"""Run the tests of a render with one fault in it."""

import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

from tests.installed import clean_environment, installed
from tests.mutation.fault import Fault
from tests.mutation.targets import Target
from tests.stores import forks

# A render's tests take a few seconds. They must find a fault, not hang in it for ever.
PATIENCE_SECONDS = 300


class Outcome(NamedTuple):
    """How the tests ended: `passed`, `failed`, or `broken` when they hang or do not even run."""

    verdict: str
    output: str

    @property
    def first_failure(self) -> str:
        """The first test that failed, or the last line of the output."""
        found = re.search(r"^FAILED \S+::(.+?)(?: - .*)?$", self.output, re.MULTILINE)
        return found[1] if found else (self.output.strip().splitlines() or [""])[-1]


def run(target: Target, fault: Fault | None = None) -> Outcome:
    """Run the tests of a copy of the target's render, with the fault in it if there is one.

    Raises ValueError when the fault's old text is not in its file exactly once.
    """
    project = installed(target.variant)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for name in target.copied:
            source = project / name
            if source.is_dir() and not source.is_symlink():
                shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy2(source, copy / name, follow_symlinks=False)
        command = target.command(project, copy)
        if fault is not None:
            fault.apply(copy)
        return _outcome(target, command, copy)


def _outcome(target: Target, command: list[str], copy: Path) -> Outcome:
    try:
        environment = {**clean_environment(), **target.variables(copy)}
        result = forks.run(command, copy, environment, PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        return Outcome("broken", f"The tests did not end in {PATIENCE_SECONDS} seconds.")
    verdicts = {0: "passed", target.failed: "failed"}
    return Outcome(verdicts.get(result.returncode, "broken"), result.stdout)
