"""The first turn of a process: it recalls, however long the vendors' clients take to load."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conformance.chat import Chat
from tests.conformance.server import Server
from tests.memory.agents import SETTINGS, Agent

# What a busy machine does: each of these modules takes longer than a turn waits for memories.
PYTHON = """
import sys, time

class Slow:
    def find_spec(self, name, path=None, target=None):
        if name in {"boto3.session", "bedrock_agentcore.memory"} or name.endswith(".memorystore"):
            time.sleep(4)

sys.meta_path.insert(0, Slow())
"""
NODE = r"""
import { registerHooks } from 'node:module'

const slow = [/client-bedrock-agentcore\//, /bedrock-agentcore\/dist\/.*memory/]
registerHooks({
  load(url, context, next) {
    const at = slow.findIndex((one) => one.test(url))
    if (at >= 0) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 4000)
    if (at >= 0) slow.splice(at, 1)
    return next(url, context)
  },
})
"""


@pytest.mark.usual("strands-python-alone", "strands-typescript-alone")
def test_the_first_turn_recalls_where_modules_load_slowly(
    resting: Agent, who: str, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(PYTHON)
    (tmp_path / "slow.mjs").write_text(NODE)
    slow = {"PYTHONPATH": str(tmp_path), "NODE_OPTIONS": f"--import={tmp_path / 'slow.mjs'}"}
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
