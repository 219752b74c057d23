"""Random schedules of turns keep every session whole, in each render."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.installed import NODE, clean_environment, installed, packages

MACHINES = Path(__file__).parent / "schedules"
# What a machine needs besides a render in TypeScript.
TOOLS = b'{"dependencies": {"fast-check": "^4.3"}}'

pytestmark = pytest.mark.slow
half = pytest.mark.parametrize("half", [1, 2])  # of 5,000 schedules, for two workers


def run(command: list[str], folder: Path, **environment: str) -> str:
    schedules = {"SCHEDULES": os.environ.get("SCHEDULES", "2500")}
    ran = subprocess.run(
        command, cwd=folder, env=clean_environment() | schedules | environment,
        capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout[-5000:] + ran.stderr[-5000:]
    return ran.stdout


@half
@pytest.mark.parametrize("target", ["strands-python", "vercel-python"])
def test_random_schedules_keep_every_session_whole(target: str, half: int, tmp_path: Path) -> None:
    project = installed(target)
    shutil.copy(project / "tests" / "conftest.py", tmp_path)
    shutil.copy(MACHINES / "python_machine.py", tmp_path)
    command = ["uv", "run", "--no-sync", "--project", str(project)]
    command += ["--with", "hypothesis>=6.120,<7", "python", "-m", "pytest", "python_machine.py"]
    command += ["-q", "-p", "no:cacheprovider", "-c", "/dev/null", "-o", "pythonpath=."]
    command += [f"--hypothesis-seed={half}"] if "CI" in os.environ else []
    assert "1 passed" in run(command, tmp_path)


@half
@pytest.mark.parametrize("target", ["strands-typescript", "vercel-typescript"])
def test_random_schedules_keep_every_session_whole_in_typescript(
    target: str, half: int, tmp_path: Path
) -> None:
    project, tests = installed(target), tmp_path / "tests"
    shutil.copytree(project / "src", tmp_path / "src")
    (tmp_path / "node_modules").symlink_to((project / "node_modules").resolve())
    (tests / "node_modules").mkdir(parents=True)
    (tests / "node_modules" / "fast-check").symlink_to(packages(TOOLS) / "fast-check")
    for source in (project / "tests" / "scripted_model.ts", MACHINES / "typescript_machine.ts"):
        shutil.copy(source, tests)
    shutil.copy(project / "package.json", tmp_path)
    seed = {"SEED": str(half)} if "CI" in os.environ else {}
    command = [str(NODE), "tests/typescript_machine.ts"]
    assert " schedules" in run(command, tmp_path, **seed)
