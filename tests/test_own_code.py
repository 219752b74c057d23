"""The code of this repository is held to what it asks of a render."""

import hashlib
import subprocess
import sys
import tomllib

import pytest
import yaml
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from hooks.loading import load
from tests.conftest import ROOT


@pytest.mark.slow
@pytest.mark.parametrize("command", ["ruff check", "ruff format --check", "mypy"])
def test_hooks_and_tests_are_clean(command: str) -> None:
    result = subprocess.run(
        [sys.executable, "-m", *command.split()], cwd=ROOT, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_ci_runs_the_line_of_the_readme() -> None:
    line = "python3 -m pip install -q uv && python3 -m uv run pytest"
    assert line in (ROOT / ".ci" / "run").read_text().splitlines()
    assert line in (ROOT / "README.md").read_text()


def test_ci_tries_the_oldest_and_the_newest_copier_on_every_python() -> None:
    matrix = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    tried = matrix["jobs"]["test"]["strategy"]["matrix"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (allowed,) = [line for line in project["dependencies"] if line.startswith("copier")]
    oldest = load(ROOT).settings["_min_copier_version"]
    assert tried["copier"] == [f"=={oldest}", allowed.removeprefix("copier")]
    assert Version(oldest) in SpecifierSet(allowed.removeprefix("copier"))
    assert tried["python"] == ["3.11", "3.12", "3.13"]
    assert project["requires-python"] == ">=3.11"


def test_ci_fetches_the_whole_history() -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]
    for job in jobs.values():
        assert job["steps"][0]["with"]["fetch-depth"] == 0


# Files that owners fill, and that never change: an update that meets them would conflict.
OWNED = {
    "python/src/app/routes.py": "89bf2e9a5466cf32",
    "python/tests/test_agent.py": "0a966d357b931e60",
    "typescript/src/routes.ts": "d33832625727fd3a",
    "typescript/tests/agent.test.ts": "9f936d515e70eda7",
}


@pytest.mark.parametrize("path", OWNED)
def test_files_that_updates_leave_alone_never_change(path: str) -> None:
    digest = hashlib.sha256((ROOT / "template" / path).read_bytes()).hexdigest()
    assert digest.startswith(OWNED[path])
