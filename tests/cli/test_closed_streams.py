"""Commands whose standard streams are closed, and a server whose output has no reader left."""

import os
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from hooks.variants import TARGETS
from tests.installed import installed
from tests.stores.agents import command

pytestmark = pytest.mark.slow
# What a shell closes, a command, and whether that prints something that can be read.
CASES = [
    ("<&-", "chat Hello.", b"Hello."),
    (">&-", "check", b""),
    ("2>&-", "check", b"0 errors"),
    ("<&- >&- 2>&-", "chat Hello.", b""),
]
PATIENCE = 60


def start(
    target: str, folder: Path, redirections: str, *words: str, **variables: str
) -> subprocess.Popen[bytes]:
    """Start a command of a render as a shell does, with these redirections."""
    script = f'exec "$@" {redirections}'
    return subprocess.Popen(
        ["bash", "-c", script, "bash", *command(installed(target), *words)],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), "PORT": "0", **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


@pytest.mark.full
@pytest.mark.parametrize("target", TARGETS)
def test_commands_run_with_closed_streams(target: str, tmp_path: Path) -> None:
    runs = [start(target, tmp_path, closed, *words.split()) for closed, words, _ in CASES]
    for run, (closed, words, wanted) in zip(runs, CASES, strict=True):
        output, errors = run.communicate(timeout=PATIENCE)
        assert run.returncode == 0, f"{words} {closed}: {errors.decode()}"
        assert wanted in output if wanted else not output


@pytest.mark.parametrize("target", TARGETS)
def test_a_server_goes_on_when_the_reader_of_its_output_has_left(
    target: str, tmp_path: Path
) -> None:
    reserved = socket.socket()  # no other process gets its port, and the server may listen there
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind(("127.0.0.1", 0))
    port = reserved.getsockname()[1]
    server = start(target, tmp_path, "", "serve", PORT=str(port))
    assert server.stdout is not None
    assert server.stderr is not None
    server.stdout.close()  # before the first line, as with `serve | true`
    server.stderr.close()
    try:
        deadline = time.monotonic() + PATIENCE
        reply = None
        while reply is None and server.poll() is None and time.monotonic() < deadline:
            with suppress(httpx.TransportError):
                reply = httpx.post(
                    f"http://127.0.0.1:{port}/invocations",
                    json={"prompt": "Hello."},
                    headers={"Accept": "application/json"},
                )
            time.sleep(0.05)
        assert reply is not None, "the server has ended"
        assert reply.status_code == 200
        server.terminate()
        assert server.wait(PATIENCE) == 0
    finally:
        reserved.close()
        server.kill()
        server.wait()


FULL_OUTPUT = """
import io, os, threading, time
from my_agent.harness.commands import OutputWithoutReader
reader, writer = os.pipe()
os.set_blocking(writer, False)
room = os.write(writer, bytes(1 << 20))
output = io.BufferedWriter(OutputWithoutReader(os.fdopen(writer, "wb", 0)))
threading.Timer(1, lambda: os.read(reader, room)).start()
begin = time.monotonic(), time.process_time()
output.write(b"line")
output.flush()
waited, used = time.monotonic() - begin[0], time.process_time() - begin[1]
print(os.read(reader, room).decode(), used < waited / 4)
"""


@pytest.mark.parametrize("target", [target for target in TARGETS if "python" in target])
def test_a_full_output_that_does_not_block_is_waited_for(target: str, tmp_path: Path) -> None:
    python = installed(target) / ".venv" / "bin" / "python"
    done = subprocess.run(
        [python, "-c", FULL_OUTPUT], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.stdout == "line True\n", done
