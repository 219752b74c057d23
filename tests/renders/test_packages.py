"""The Python package of a project has its name: no other project's code runs in its place."""

import subprocess
from pathlib import Path

import pytest

from hooks.rendering import render
from tests.conftest import ROOT
from tests.installed import clean_environment, installed, uv

WORKSPACE = """[tool.uv.workspace]
members = ["*-desk"]
"""
PROMPT = "You are a helpful assistant. Answer briefly and in plain words."
ASK = "from {package} import agent; print(agent.SYSTEM_PROMPT)"


@pytest.mark.slow
def test_a_foreign_app_on_the_path_breaks_nothing(tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "__init__.py").write_text("raise ImportError('the foreign app')\n")
    project = installed("vercel-python")
    result = subprocess.run(
        [str(project / ".venv" / "bin" / "my-agent"), "check"],
        cwd=project,
        env={**clean_environment(), "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    assert "0 errors" in result.stdout + result.stderr


@pytest.mark.full
def test_two_agents_of_a_workspace_run_their_own_code(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(WORKSPACE)
    names = ["book-desk", "order-desk"]
    for name in names:
        render(ROOT, {"project_name": name, "target": "vercel-python"}, tmp_path / name)
        agent = tmp_path / name / "src" / name.replace("-", "_") / "agent.py"
        agent.write_text(agent.read_text("utf-8").replace(PROMPT, f"You are {name}."), "utf-8")
    for name in names:
        command = [*uv(), "run", "--quiet", "--all-packages", "python", "-c"]
        command.append(ASK.format(package=name.replace("-", "_")))
        said = subprocess.run(
            command, cwd=tmp_path, env=clean_environment(), stdout=subprocess.PIPE, text=True
        )
        assert said.stdout == f"You are {name}.\n"
        check = [*uv(), "run", "--quiet", "--package", name, name, "check"]
        subprocess.run(check, cwd=tmp_path / name, env=clean_environment(), check=True)
