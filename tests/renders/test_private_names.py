"""An SDK whose private names are others than those that a render changes works as it did."""

import subprocess
from pathlib import Path

import pytest

from tests.installed import NODE, installed

pytestmark = pytest.mark.slow
PYTHON = """
from strands.telemetry.tracer import Tracer
del Tracer._add_event_messages
import my_agent.harness.messages
assert not hasattr(Tracer, "_add_event_messages")
"""
TYPESCRIPT = """
const { traceOnlyRecorded } = await import(process.argv[1])
class Tracer {}
for (const agent of [{}, { _tracer: null }, { _tracer: new Tracer() }]) traceOnlyRecorded(agent)
const added = []
Tracer.prototype._addEventMessages = (span, messages) => added.push(messages)
const agent = { _tracer: new Tracer() }
traceOnlyRecorded(agent)
for (const isRecorded of [false, true]) {
  agent._tracer._addEventMessages({ isRecording: () => isRecorded }, isRecorded)
}
if (String(added) !== 'true') throw new Error(String(added))
"""


def run(project: Path, *command: str) -> None:
    done = subprocess.run(command, cwd=project, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_tracer_of_strands_python_with_other_names_is_left_alone() -> None:
    project = installed("strands-python")
    run(project, str(project / ".venv" / "bin" / "python"), "-c", PYTHON)


def test_a_tracer_of_strands_typescript_with_other_names_is_left_alone() -> None:
    project = installed("strands-typescript")
    module = (project / "src" / "harness" / "messages.ts").as_uri()
    run(project, str(NODE), "--input-type=module", "-e", TYPESCRIPT, module)
