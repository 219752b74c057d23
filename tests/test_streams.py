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
CLOSED = ("<&-", ">&-", "2>&-", "<&- >&- 2>&-")
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


@pytest.mark.parametrize("target", TARGETS)
def test_commands_run_with_closed_streams(target: str, tmp_path: Path) -> None:
    runs = {
        (*words, closed): start(target, tmp_path, closed, *words)
        for closed in CLOSED
        for words in (["check"], ["chat", "Hello."])
    }
    printed = {
        key: (*run.communicate(timeout=PATIENCE), run.returncode) for key, run in runs.items()
    }
    failed = {key: end for key, end in printed.items() if end[2] != 0}
    assert failed == {}
    for (*words, closed), (output, errors, _) in printed.items():
        is_open = closed in ("<&-", "2>&-")
        wanted = b"0 errors" if words == ["check"] else b"Hello."
        assert (wanted in output) == is_open, "a reply goes to standard output, if there is one"
        assert b"Traceback" not in errors


@pytest.mark.parametrize("target", TARGETS)
def test_a_server_goes_on_when_the_reader_of_its_output_has_left(
    target: str, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = start(target, tmp_path, "", "serve", PORT=str(port))
    assert server.stdout and server.stderr
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
        server.kill()
        server.wait()
