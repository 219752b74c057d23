"""Run each test in its own folder, without your settings, credentials and collections."""

import os
from pathlib import Path

import pytest

AGENT = '---\nagent_id: "apart"\nmemory: {mode: "none"}\n---\n'
ENVIRONMENT = (
    "AGENT_ID",
    "AWS_",
    "CHECKPOINTS",
    "MODEL",
    "PROJECT_ID",
    "SECRET",
    "SESSION",
    "STORE_",
)


@pytest.fixture(autouse=True)
def apart(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder; its only agent uses no collection."""
    folder = tmp_path_factory.mktemp("apart")
    for name in [name for name in os.environ if name.startswith(ENVIRONMENT)]:
        monkeypatch.delenv(name)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(folder / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for kind in ("agents", "collections", "iam"):
        (folder / kind).mkdir()
    (folder / "agents" / "apart.agent.md").write_text(AGENT, "utf-8")
    monkeypatch.chdir(folder)
    return folder
