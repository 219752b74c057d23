"""The first turn of a process: it is taken, however long the client of the store takes to load."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conformance.chat import Chat, echoed
from tests.stores.agents import Agents
from tests.support.slow_modules import slow_modules


@pytest.mark.full
@pytest.mark.stores("valkey", "s3")
@pytest.mark.one_each
def test_the_first_turn_waits_for_a_client_that_loads_slowly(
    agents: Agents, tmp_path: Path
) -> None:
    node = (r"/iovalkey/built/index", r"/client-s3/dist-[a-z]+/index")
    slow = slow_modules(tmp_path, r"valkey\.asyncio|boto3\.session", *node)
    home = agents.home()
    home.target = replace(home.target, start=subprocess.Popen)
    replica = agents.fresh(home, STORE_TIMEOUT_SECONDS=2, **slow)
    chat = Chat(replica.server, agents.provider)
    assert chat.say("One.").turn == 1
    assert chat.recalled() == echoed("One.")
