"""Turn by turn a process in a small heap keeps nothing, also with a tool that keeps listening."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.installed import NODE, installed

TURNS = 500
MOST_BYTES = 900  # of a turn; signals that kept their listeners took 2,500 and more


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.parametrize(
    "variant",
    [
        "vercel-typescript",
        pytest.param("strands-typescript+agentcore", marks=pytest.mark.full),
        pytest.param("strands-typescript", marks=pytest.mark.full),
        pytest.param("vercel-typescript+agentcore", marks=pytest.mark.full),
    ],
)
def test_turns_leave_nothing_in_a_heap_of_64_megabytes(variant: str, tmp_path: Path) -> None:
    project = installed(variant)
    for folder in ("agents", "collections", "iam"):
        if (project / folder).exists():
            shutil.copytree(project / folder, tmp_path / folder)
    options = ["--expose-gc", "--max-old-space-size=64"]
    script = Path(__file__).with_name("growth.mjs")
    command = [str(NODE), *options, str(script), str(project), str(TURNS)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.splitlines()[-1]) < MOST_BYTES
