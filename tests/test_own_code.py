"""The code of this repository is held to what it asks of a render."""

import subprocess
import sys

import pytest

from tests.conftest import ROOT


@pytest.mark.slow
@pytest.mark.parametrize("command", ["ruff check", "ruff format --check", "mypy"])
def test_hooks_and_tests_are_clean(command: str) -> None:
    result = subprocess.run(
        [sys.executable, "-m", *command.split()], cwd=ROOT, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_no_module_of_hooks_is_over_150_lines() -> None:
    lengths = {path.name: len(path.read_text().splitlines()) for path in ROOT.glob("hooks/*.py")}
    assert {name: length for name, length in lengths.items() if length > 150} == {}


def test_ci_runs_the_line_of_the_readme() -> None:
    line = "python3 -m pip install -q uv && python3 -m uv run pytest"
    assert line in (ROOT / ".ci" / "run").read_text().splitlines()
    assert line in (ROOT / "README.md").read_text()
