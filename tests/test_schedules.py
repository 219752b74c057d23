"""Random schedules of turns keep every session whole, in each render."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.installed import installed

MACHINES = Path(__file__).parent / "schedules"


@pytest.mark.slow
@pytest.mark.parametrize("half", [1, 2])  # of 5,000 schedules, for two workers
@pytest.mark.parametrize("target", ["strands-python", "vercel-python"])
def test_random_schedules_keep_every_session_whole(target: str, half: int, tmp_path: Path) -> None:
    project = installed(target)
    shutil.copy(project / "tests" / "conftest.py", tmp_path)
    shutil.copy(MACHINES / "python_machine.py", tmp_path)
    environment = {**os.environ, "SCHEDULES": os.environ.get("SCHEDULES", "2500")}
    environment.pop("VIRTUAL_ENV", None)
    command = ["uv", "run", "--no-sync", "--project", project, "--with", "hypothesis>=6.120,<7"]
    pytest_options = ["-q", "-p", "no:cacheprovider", "-c", "/dev/null", "-o", "pythonpath=."]
    pytest_options += [f"--hypothesis-seed={half}"] if "CI" in os.environ else []
    ran = subprocess.run(
        [*command, "python", "-m", "pytest", *pytest_options, "python_machine.py"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout[-5000:] + ran.stderr[-2000:]
    assert "1 passed" in ran.stdout
