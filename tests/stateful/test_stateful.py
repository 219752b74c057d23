"""Random schedules of turns keep every session whole, in each render."""

import os
import shutil
from pathlib import Path

import pytest

from tests.installed import NODE, clean_environment, installed
from tests.stores import forks

MACHINES = Path(__file__).parent

pytestmark = pytest.mark.slow
# The full run has 5,000 schedules for each target, in halves for two workers.
some = pytest.mark.parametrize(
    ("seed", "schedules"),
    [
        (1, 60),
        pytest.param(2, 2500, marks=pytest.mark.full),
        pytest.param(3, 2500, marks=pytest.mark.full),
    ],
)


def run(command: list[str], folder: Path, schedules: int, **environment: str) -> str:
    variables = clean_environment() | {"SCHEDULES": str(schedules)} | environment
    ran = forks.run(command, folder, variables)
    assert ran.returncode == 0, ran.stdout[-5000:]
    return ran.stdout


@some
@pytest.mark.parametrize("target", ["strands-python", "vercel-python"])
def test_random_schedules_keep_every_session_whole(
    target: str, seed: int, schedules: int, tmp_path: Path
) -> None:
    project = installed(target)
    shutil.copy(project / "tests" / "conftest.py", tmp_path)
    shutil.copy(MACHINES / "python_machine.py", tmp_path)
    command = [str(project / ".venv" / "bin" / "python"), "-m", "pytest", "python_machine.py"]
    command += ["-q", "-p", "no:cacheprovider", "-c", "/dev/null", "-o", "pythonpath=."]
    command += [f"--hypothesis-seed={seed}"] if "CI" in os.environ else []
    assert "1 passed" in run(command, tmp_path, schedules)


@some
@pytest.mark.parametrize("target", ["strands-typescript", "vercel-typescript"])
def test_random_schedules_keep_every_session_whole_in_typescript(
    target: str, seed: int, schedules: int, tmp_path: Path
) -> None:
    project, tests = installed(target), tmp_path / "tests"
    shutil.copytree(project / "src", tmp_path / "src")
    (tmp_path / "node_modules").symlink_to((project / "node_modules").resolve())
    tests.mkdir()
    for source in (project / "tests" / "scripted_model.ts", MACHINES / "typescript_machine.ts"):
        shutil.copy(source, tests)
    shutil.copy(project / "package.json", tmp_path)
    fixed = {"SEED": str(seed)} if "CI" in os.environ else {}
    command = [str(NODE), "tests/typescript_machine.ts"]
    assert " schedules" in run(command, tmp_path, schedules, **fixed)
