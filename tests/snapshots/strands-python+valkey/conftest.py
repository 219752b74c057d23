"""The tests run in a folder of their own, as an agent that no collection of yours concerns."""

import os
from pathlib import Path
from tempfile import TemporaryDirectory

folder = TemporaryDirectory()  # until the tests are over


def pytest_configure() -> None:
    os.chdir(folder.name)
    for name in ("collections", "agents"):
        Path(name).mkdir()
    agent = '---\nagent_id: "apart"\nmemory: {mode: "none"}\n---\n'
    Path("agents/apart.agent.md").write_text(agent)
