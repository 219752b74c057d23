"""Code of an owner runs turns, adds to them and ends them; nothing of the harness is replaced."""

import shutil
from pathlib import Path

import pytest

from tests.installed import clean_environment, installed
from tests.stores import forks

HERE = Path(__file__).parent
NAMES = ("client.py", "conftest.py", "own_fixtures.py", "script.py", "scripted_model.py")
OPTIONS = ["-q", "-p", "no:cacheprovider", "-c", "pyproject.toml"]


@pytest.mark.parametrize("target", ["strands-python", "vercel-python"])
def test_turns_of_an_owner(target: str, tmp_path: Path) -> None:
    project = installed(f"{target}+auth")
    shutil.copytree(project / "src", tmp_path / "src")
    tests = tmp_path / "tests"
    tests.mkdir()
    for name in NAMES:
        shutil.copy(next(project.glob(f"tests/**/{name}")), tests)
    shutil.copy(HERE / "owned_turns.py", tests)
    shutil.copy(HERE / f"{target.replace('-', '_')}.py", tests / "owned_tools.py")
    shutil.copy(project / "pyproject.toml", tmp_path)
    python = str(project / ".venv" / "bin" / "python")
    path = f"pythonpath={tmp_path / 'src'} {tests}"
    command = [python, "-m", "pytest", "tests/owned_turns.py", *OPTIONS, "-o", path]
    ran = forks.run(command, tmp_path, clean_environment())
    assert ran.returncode == 0, ran.stdout[-5000:]
