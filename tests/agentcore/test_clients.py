"""Clients that nobody has changed: AWS's SDK for JavaScript, and its memory store for Strands."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.agentcore.boto import FACTS
from tests.agentcore.server import AgentCore
from tests.installed import NODE, ROOT, clean_environment, environment

HERE = Path(__file__).parent


def run(command: list[str | os.PathLike[str]], agentcore: AgentCore) -> str:
    variables = clean_environment() | agentcore.environment()
    result = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()[-1]


@pytest.mark.slow
def test_the_sdk_for_javascript(agentcore: AgentCore, tmp_path: Path) -> None:
    memory = agentcore.add_memory("notes", FACTS)
    (tmp_path / "node_modules").symlink_to(environment("strands-typescript") / "node_modules")
    agentcore.faults.throttle("CreateEvent")
    agentcore.faults.lose_reply("CreateEvent", after=1)
    script = shutil.copy(HERE / "sdk.mjs", tmp_path)
    assert json.loads(run([NODE, script, memory], agentcore)) == {
        "times": [f"2026-01-02T03:04:05.67{n}Z" for n in (8, 9)] + ["2026-01-02T03:04:05.680Z"],
        "record": "My cat no. 1 is called Miso",
        "texts": [
            ["My cat no. 2 is called Miso", "My cat no. 1 is called Miso"],
            ["My cat no. 0 is called Miso"],
        ],
        "refused": ["ValidationException", 400],
    }
    assert len(agentcore.take_violations()) == 1
    assert agentcore.calls.count("ListEvents") == 2
    statuses = [call.status for call in agentcore.calls.of("CreateEvent")]
    assert statuses == [429, 201, 0, 201, 201, 400]


@pytest.mark.slow
def test_a_server_for_a_trial_by_hand() -> None:
    command = [sys.executable, "-m", "tests.agentcore.server", "--memory", "notes"]
    with subprocess.Popen(
        [*command, "--strategy", FACTS], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        lines = [running.stdout.readline().removeprefix("export ").rstrip() for _ in range(8)]
        running.kill()
    variables = dict(line.split("=", 1) for line in lines)
    assert variables["AGENTCORE_MEMORY_NOTES_ID"].startswith("notes-")
    assert variables["AWS_ENDPOINT_URL_BEDROCK_AGENTCORE"].startswith("http://127.0.0.1:")


@pytest.mark.slow
def test_the_memory_store_for_strands(agentcore: AgentCore) -> None:
    memory = agentcore.add_memory("notes", FACTS)
    python = environment("strands-python") / ".venv" / "bin" / "python"
    found = run([python, HERE / "store.py", memory], agentcore)
    assert json.loads(found) == [["My cat is called Miso", ["/users/alice/facts/"]]]
    # What it sends again has its token.
    assert agentcore.service.counts["extracted"] == 2
    repeated = agentcore.service.counts["repeated with other content"]
    assert repeated + agentcore.service.counts["repeated"] == 1
