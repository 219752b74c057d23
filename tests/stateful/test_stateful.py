"""Random schedules of turns keep every session whole, in each render."""

import os
from pathlib import Path

import pytest

from tests.installed import clean_environment, installed
from tests.stateful.machines import VARIANT, arrange
from tests.stores import forks

pytestmark = pytest.mark.slow
# The full run has 5,000 schedules for each target, in halves for two workers.
some = pytest.mark.parametrize(
    ("seed", "schedules"),
    [
        (1, 150),
        pytest.param(2, 2500, marks=pytest.mark.full),
        pytest.param(3, 2500, marks=pytest.mark.full),
    ],
)


@some
@pytest.mark.parametrize(
    "target",
    [
        "vercel-typescript",
        pytest.param("strands-python", marks=pytest.mark.full),
        pytest.param("vercel-python", marks=pytest.mark.full),
        pytest.param("strands-typescript", marks=pytest.mark.full),
    ],
)
def test_random_schedules_keep_every_session_whole(
    target: str, seed: int, schedules: int, tmp_path: Path
) -> None:
    command = arrange(target, installed(target + VARIANT), tmp_path)
    variables = clean_environment() | {"SCHEDULES": str(schedules)}
    if "CI" in os.environ and target.endswith("-python"):
        command.append(f"--hypothesis-seed={seed}")
    elif "CI" in os.environ:
        variables["SEED"] = str(seed)
    ran = forks.run(command, tmp_path, variables)
    assert ran.returncode == 0, ran.stdout[-5000:]
    assert "1 passed" in ran.stdout or " schedules" in ran.stdout
