"""From session to session a process keeps neither descriptors nor memory."""

import subprocess
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conformance.client import ACTOR, JSON, SESSION
from tests.conformance.server import Server
from tests.conformance.targets import SHARED, TARGETS, Target
from tests.memory.agents import HUNG, Agent, unique

FIRST = 10
MOST_FILES = 5
# Node frees memory when it needs to: in a small heap it has to. Its space for what is new would
# grow to 100 MB beside that of --max-old-space-size, and then stay so.
MOST_MEGABYTES = {"python": 20, "typescript": 40}
HEAP = "--max-old-space-size=64 --max-semi-space-size=8"


def used(server: Server) -> tuple[int, float]:
    """The open descriptors and the megabytes of a process."""
    process = Path(f"/proc/{server._process.pid}")
    status = (process / "status").read_text().splitlines()
    (line,) = (line for line in status if line.startswith("VmRSS:"))
    return len(list((process / "fd").iterdir())), int(line.split()[1]) / 1024


def use(server: Server, first: int, last: int) -> None:
    """A turn in each session, one after the other, each of another person."""
    for number in range(first, last):
        who = unique("robin")
        headers = {**JSON, SESSION: f"session-{number:04d}-{who}", ACTOR: who}
        reply = server.post({"prompt": f"My number {number} is a good one."}, headers)
        assert reply.status == 200, reply
    while server.get("/ping").json["status"] != "Healthy":
        threading.Event().wait(0.02)


def grows_little(agent: Agent, last: int) -> None:
    language = agent.target.name.split("-")[1]
    server = agent.fresh(**({"NODE_OPTIONS": HEAP} if language == "typescript" else {}))
    use(server, 0, FIRST)
    files, megabytes = used(server)
    use(server, FIRST, last)
    more_files, more_megabytes = used(server)
    print(f"{agent.target.name}: {FIRST} sessions: {files} files, {megabytes:.1f} MB;")
    print(f"{last} sessions: {more_files} files, {more_megabytes:.1f} MB")
    server.signal()
    assert server.exit_code(within=HUNG) == 0
    assert more_files - files <= MOST_FILES
    assert more_megabytes - megabytes <= MOST_MEGABYTES[language]


@pytest.mark.full
@pytest.mark.usual("strands-typescript-alone")
def test_a_hundred_sessions_cost_little(resting: Agent) -> None:
    grows_little(resting, 100)


@pytest.mark.full
def test_a_thousand_sessions_cost_little(resting: Agent) -> None:
    grows_little(resting, 1000)


GARBAGE = """
import gc
from my_agent import main
from my_agent import routes
from starlette.responses import PlainTextResponse

async def garbage(*_):
    return PlainTextResponse(f"{gc.isenabled()} {gc.get_freeze_count() > 10_000}")

routes.ROUTES["GET /garbage"] = garbage
main.cli()
"""


@pytest.mark.parametrize(
    "python",
    [
        pytest.param(it, id=it.name, marks=() if it.name in SHARED else pytest.mark.full)
        for it in TARGETS
        if it.name.endswith("-python")
    ],
)
@pytest.mark.full
def test_garbage_is_collected_once_a_server_listens(python: Target, tmp_path: Path) -> None:
    """It is not while modules load; what they are is left out later."""

    def command(project: Path) -> list[str]:
        return [str(project / ".venv" / "bin" / "python"), "-c", GARBAGE, "serve"]

    server = Server(replace(python, command=command, start=subprocess.Popen), tmp_path, None, {})
    try:
        assert server.get("/garbage").body == b"True True"
    finally:
        server.stop()
