"""The first screen of README: its agent, and the turn that fails in it."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.installed import clean_environment, environment, installed

README = (ROOT / "README.md").read_text("utf-8")


BLOCKS: list[tuple[str, str]] = re.findall(r"(?ms)^```(\w*)\n(.*?)^```$", README)


def agent_of_readme() -> str:
    """Return the module `agent` that README shows."""
    return next(text for language, text in BLOCKS if language == "python")


def transcript() -> tuple[str, list[str]]:
    """Return the command of the transcript, and the lines that follow."""
    text = next(text for language, text in BLOCKS if not language and text.startswith("$ "))
    command, *lines = text.splitlines()
    return command, lines


def run(
    project: Path, *command: str | Path, typed: str = "", **variables: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=project,
        env={**clean_environment(), **variables},
        input=typed,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plain project with the agent of README."""
    agent = tmp_path_factory.mktemp("shop") / "readme" / "agent.py"
    agent.parent.mkdir()
    agent.write_text(agent_of_readme())
    return installed("strands-python", agent)


@pytest.mark.slow
def test_the_turn_of_the_transcript_fails_and_the_session_stays(project: Path) -> None:
    command, lines = transcript()
    setting, *words = command.removeprefix("$ ").split()
    assert words == ["uv", "run", "my-agent", "chat"]
    name, _, value = setting.partition("=")
    prompts = [line.removeprefix("> ") for line in lines if line.startswith("> ")]
    typed = "".join(f"{prompt}\n" for prompt in prompts)
    program = project / ".venv" / "bin" / "my-agent"
    done = run(project, program, "chat", typed=typed, **{name: value})
    assert "\n".join(lines) in done.stdout
    assert done.returncode == 1, "a turn has failed"
    before, failed, after = lines[1::2]
    assert failed.startswith("The turn timed out")
    assert prompts[0] in before
    assert prompts[0] in after
    assert prompts[1] not in after


@pytest.mark.slow
def test_the_agent_is_clean_for_the_linters_of_its_project(project: Path) -> None:
    ruff = environment("strands-python") / ".venv" / "bin" / "ruff"
    for words in (["check"], ["format", "--check"]):
        done = run(project, ruff, *words, "--no-cache")
        assert done.returncode == 0, done.stdout
