"""A process that has no time for its event loop: that is no failure of the store."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conformance.chat import Chat, echoed
from tests.conformance.client import JSON
from tests.stores.agents import Agents
from tests.stores.servers import wait_for
from tests.support.blocking import blocking


@pytest.mark.full
@pytest.mark.spread
def test_a_blocked_event_loop_is_no_failure_of_the_store(agents: Agents) -> None:
    home = agents.home(timeout_ms=1000)
    home.target = blocking(home.target, seconds=2)
    replica = agents.fresh(home, STORE_TIMEOUT_SECONDS=1)
    chat, proxy = Chat(replica.server, agents.provider), replica.proxy
    assert chat.say("One.").turn == 1
    proxy.mode, proxy.drip_ms, sent = "delay", 300, proxy.bytes
    running = chat.start("Two.", headers=JSON)
    wait_for("a call of the store", lambda: proxy.bytes > sent)
    assert replica.server.get("/block").body == b"blocked"
    reply = running.reply()
    proxy.reset()
    assert (reply.status, reply.turn) == (200, 2), reply
    assert chat.recalled() == echoed("One.", "Two.")


MODULES = """
import sys
import my_agent.routes
from starlette.responses import PlainTextResponse
async def modules(request, runtime):
    return PlainTextResponse(' '.join(sys.modules))
my_agent.routes.ROUTES['GET /modules'] = modules
from my_agent.main import cli; cli()
"""


# Node loads modules beside the event loop.
@pytest.mark.rows(where=lambda row: not row["agents"][0].is_node)
@pytest.mark.stores("valkey")
@pytest.mark.spread
def test_the_clients_are_loaded_before_the_first_turn(agents: Agents) -> None:
    """Otherwise the first turns of many callers wait for the modules, and time out."""

    def command(project: Path) -> list[str]:
        return [str(project / ".venv" / "bin" / "python"), "-c", MODULES, "serve"]

    home = agents.home()
    home.target = replace(home.target, command=command, start=subprocess.Popen)
    server = agents.fresh(home).server
    before = server.get("/modules").body.decode().split()
    assert Chat(server, agents.provider).say("One.").turn == 1
    loaded = {*server.get("/modules").body.decode().split()} - {*before}
    assert [name for name in loaded if name.startswith(("openai", "valkey"))] == []
