"""The first turn of a process: it recalls, however long the vendors' clients take to load."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conformance.chat import Chat
from tests.conformance.server import Server
from tests.memory.agents import SETTINGS, Agent
from tests.support.slow_modules import slow_modules


@pytest.mark.full
@pytest.mark.usual("strands-python-alone")
def test_the_first_turn_recalls_where_modules_load_slowly(
    resting: Agent, who: str, tmp_path: Path
) -> None:
    python = r"boto3\.session|bedrock_agentcore\.memory|.*\.memorystore"
    node = (r"client-bedrock-agentcore/", r"bedrock-agentcore/dist/.*memory")
    slow = slow_modules(tmp_path, python, *node)
    target = replace(resting.target, start=subprocess.Popen)
    given = {**SETTINGS, **resting.variables, **slow, "RECALL_TIMEOUT_SECONDS": 2}
    resting.service.remember(resting.notes, f"/users/{who}/facts", "tea")
    server = Server(target, resting.home.folder, resting.provider.origin, given)
    try:
        chat = Chat(server, resting.provider, actor=who)
        assert chat.say("tea").text == "You said: tea"
        assert resting.shown(chat, "tea") == ["tea"]
    finally:
        server.signal()
        server.stop()
