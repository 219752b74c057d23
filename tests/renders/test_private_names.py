"""A render runs with an SDK that has renamed the private method that the render patches."""

import subprocess

import pytest

from tests.installed import installed

pytestmark = pytest.mark.slow
PYTHON = """
from strands.telemetry.tracer import Tracer
del Tracer._add_event_messages
import my_agent.harness.messages
assert not hasattr(Tracer, "_add_event_messages")
"""


def test_strands_python_works_without_the_patched_method_of_the_tracer() -> None:
    project = installed("strands-python")
    command = [str(project / ".venv" / "bin" / "python"), "-c", PYTHON]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
