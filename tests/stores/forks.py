"""Commands of a Python render as forks of one process: what `subprocess.Popen` is, and quicker."""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO, Any

from filelock import FileLock

from tests.installed import COMPILED, clean_environment

START_SECONDS = 60.0
ZYGOTE = Path(__file__).with_name("zygote.py")
FOLDER = "ZYGOTES"  # the variable that names the folder in which the processes of a run find it


@cache
def zygote(shared: Path) -> tuple[str, "subprocess.Popen[bytes] | None"]:
    """Where the process of an environment listens, and that process if it was started here.

    The test processes of a run share it, and it ends when the last of them does: all of them keep
    its stdin open.
    """
    folder = Path(os.environ.get(FOLDER) or tempfile.mkdtemp()) / f"zygote-{shared.parent.name}"
    folder.mkdir(parents=True, exist_ok=True)
    pipe, path = folder / "pipe", folder / "socket"
    with FileLock(folder / "lock"):
        with suppress(OSError):  # nobody reads from it
            os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
            return str(path), None
        for old in (pipe, path):
            old.unlink(missing_ok=True)
        os.mkfifo(pipe)
        os.open(pipe, os.O_RDWR)
        with pipe.open("rb", buffering=0) as end:
            command = [str(shared / "bin" / "python"), "-Pu", str(ZYGOTE), str(path)]
            environment = clean_environment()
            process = subprocess.Popen(
                command, stdin=end, stdout=subprocess.DEVNULL, env=environment
            )
        deadline = time.monotonic() + START_SECONDS
        while not path.exists():
            assert process.poll() is None, "the environment cannot be used"
            assert time.monotonic() < deadline, "its process never listens"
            time.sleep(0.02)
    return str(path), process


class Fork:
    """A process that runs `command`, a script of a render's environment, as Popen would."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        stdin: IO[str] | int = subprocess.DEVNULL,
        stderr: int = subprocess.PIPE,
        **_: Any,
    ) -> None:
        script, *words = command
        venv = Path(script).parents[1]
        path, _process = zygote((venv / "shared").resolve())
        self.args = list(command)
        self.returncode: int | None = None
        self._end = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._end.connect(path)
        pipes = [os.pipe() for _ in range(2)]
        sinks = [sink for _, sink in pipes]
        if stderr == subprocess.STDOUT:
            sinks[1] = sinks[0]
        request: dict[str, Any] = {"words": [script, *words], "source": str(venv.parent / "src")}
        request |= {"folder": str(cwd), "environment": dict(env)}
        given = [] if isinstance(stdin, int) else [stdin.fileno()]
        socket.send_fds(self._end, [json.dumps(request).encode()], [*given, *sinks])
        self.stdout, self.stderr = (_reader(source) for source, _ in pipes)
        self.pid = int(self._end.recv(32))
        for pipe in pipes:
            os.close(pipe[1])

    def poll(self) -> int | None:
        return self._ended_within(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._ended_within(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return code

    def _ended_within(self, seconds: float | None) -> int | None:
        if self.returncode is None:
            poll = select.poll()
            poll.register(self._end, select.POLLIN)
            if poll.poll(None if seconds is None else 1000 * seconds):
                self.returncode = int(self._end.recv(32))
                self._end.close()
        return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has ended meanwhile, as with Popen
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Wait for its end, and return all that it has written."""
        with ThreadPoolExecutor(2) as pool:
            written = [pool.submit(stream.read) for stream in (self.stdout, self.stderr)]
            try:
                self.wait(timeout)
            except subprocess.TimeoutExpired:
                self.kill()
                raise
            output, errors = (one.result() for one in written)
        return output, errors


def _reader(descriptor: int) -> IO[str]:
    return os.fdopen(descriptor, encoding="utf-8", errors="backslashreplace")


def start(command: Sequence[str], **options: Any) -> "subprocess.Popen[str] | Fork":
    """Start a command of a render: Python's as a fork, Node's with what it has compiled before."""
    # A fork without exec may crash on macOS, whose libraries do not allow it.
    if sys.platform == "linux" and Path(command[0]).with_name("python").exists():
        return Fork(command, **options)
    options["env"] = {**options["env"], "NODE_COMPILE_CACHE": str(COMPILED)}
    return subprocess.Popen(command, **options)


def run(
    command: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    within: float = 600,
    typed: str = "",
    *,
    is_apart: bool = False,
) -> "subprocess.CompletedProcess[str]":
    """Run a command of a render to its end; its stdout is all that it writes.

    With `is_apart`, what it writes to stderr is there instead.
    """
    errors = subprocess.PIPE if is_apart else subprocess.STDOUT
    streams = {"stdout": subprocess.PIPE, "stderr": errors}
    with tempfile.TemporaryFile("w+", encoding="utf-8") as stdin:
        stdin.write(typed)
        stdin.seek(0)
        process = start(command, cwd=folder, env=environment, text=True, stdin=stdin, **streams)
    try:
        output, complaints = process.communicate(timeout=within)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return subprocess.CompletedProcess(command, process.wait(), output, complaints)
