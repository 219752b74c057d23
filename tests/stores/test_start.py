"""The first turn of a process: it is taken, however long the client of the store takes to load."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conformance.chat import Chat, echoed
from tests.stores.agents import Agents

# What a busy machine does: the module takes longer than a call of the store may.
PYTHON = """
import sys, time

class Slow:
    def find_spec(self, name, path=None, target=None):
        if name in {"valkey.asyncio", "boto3.session"}:
            time.sleep(4)

sys.meta_path.insert(0, Slow())
"""
NODE = r"""
import { registerHooks } from 'node:module'

registerHooks({
  load(url, context, next) {
    const isFirst = /\/iovalkey\/built\/index|client-s3\/dist-[a-z]+\/index/.test(url)
    if (isFirst) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 4000)
    return next(url, context)
  },
})
"""


@pytest.mark.stores("valkey", "s3")
@pytest.mark.spread
def test_the_first_turn_waits_for_a_client_that_loads_slowly(
    agents: Agents, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(PYTHON)
    (tmp_path / "slow.mjs").write_text(NODE)
    slow = {"PYTHONPATH": str(tmp_path), "NODE_OPTIONS": f"--import={tmp_path / 'slow.mjs'}"}
    home = agents.home()
    home.target = replace(home.target, start=subprocess.Popen)
    replica = agents.fresh(home, STORE_TIMEOUT_SECONDS=2, **slow)
    chat = Chat(replica.server, agents.provider)
    assert chat.say("One.").turn == 1
    assert chat.recalled() == echoed("One.")
