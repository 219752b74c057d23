"""What is measured: rendered servers, the floors beside them, and servers of others."""

import http.client
import json
import os
import shlex
import shutil
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from tests.installed import CACHE, NODE, environment, link_environment, mirror, rendered, target_of
from tests.stores.servers import free_port

BARE, MODELS = Path(__file__).parent / "bare", Path(__file__).parent / "models"
HEADER = "X-Amzn-Bedrock-AgentCore-Runtime-Session-Id"
LIMIT = 120.0  # seconds until a server that does not answer fails the run
WITH_OPENAI = " with OpenAI"  # the end of a subject's name
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Subject:
    """A server that can be started; it listens at PORT and keeps HISTORY_MESSAGES."""

    name: str
    command: tuple[str, ...]
    folder: Path
    settings: dict[str, str] = field(default_factory=dict, hash=False)


@cache
def project_of(variant: str) -> Path:
    """A render that can be run, with the model of the benchmarks in place of the offline one."""
    target, project = target_of(variant), CACHE / "benchmarks" / variant
    project.mkdir(parents=True, exist_ok=True)
    mirror(rendered(variant), project)
    link_environment(project, environment(target))
    (model,) = MODELS.glob(f"{target.replace('-', '_')}.*")
    (place,) = (project / "src").rglob(f"echo_model{model.suffix}")
    shutil.copy(model, place)
    return project


def ours(target: str, suffix: str = "", **settings: str) -> Subject:
    """The render of a target, or of its variant with this suffix."""
    project = project_of(f"{target}{suffix or '+openai-compatible'}")
    if target.endswith("-python"):
        command: tuple[str, ...] = (str(project / ".venv" / "bin" / "my-agent"), "serve")
    else:
        command = (str(NODE), "--max-semi-space-size=8", "src/main.ts", "serve")
    return Subject(target + suffix, command, project, settings)


def bare(target: str) -> Subject:
    """The framework of a target behind a server of thirty lines, with the same offline model."""
    project = project_of(f"{target}+openai-compatible")
    name = target.replace("-", "_")
    if target.endswith("-python"):
        script = BARE / f"{name}.py"
        command: tuple[str, ...] = (str(project / ".venv" / "bin" / "python"), str(script))
    else:
        # Beside the render's own modules, which it imports.
        script = project / "src" / "bare.ts"
        shutil.copy(BARE / f"{name}.ts", script)
        command = (str(NODE), str(script))
    return Subject(f"{target} bare", command, project)


def others(given: tuple[str, ...]) -> list[Subject]:
    """Servers of others, each as NAME=COMMAND, of the same contract and with a model as quick."""
    parts = [one.partition("=") for one in given]
    return [Subject(name, tuple(shlex.split(words)), Path.cwd()) for name, _, words in parts]


@dataclass
class Running:
    """A server that runs, and a connection to it that is kept."""

    process: subprocess.Popen[bytes]
    port: int
    began: float  # by time.perf_counter()
    started: float  # seconds until it answered /ping

    def __post_init__(self) -> None:
        self.connection = self.connect()

    def connect(self) -> http.client.HTTPConnection:
        """Another connection, which opens with its first request."""
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT)

    def turn(
        self,
        session: str,
        prompt: str = "Hello.",
        connection: http.client.HTTPConnection | None = None,
    ) -> float:
        """Take a turn and return how many milliseconds it took."""
        began = time.perf_counter()
        headers, connection = headers_of(session), connection or self.connection
        connection.request("POST", "/invocations", json.dumps({"prompt": prompt}), headers)
        reply = connection.getresponse()
        text = reply.read()
        taken = (time.perf_counter() - began) * 1000
        if reply.status != 200 or b"event: error" in text or b"offline model" not in text:
            raise RuntimeError(f"{reply.status}: {text[:200]!r}")
        return taken

    def begin(self, session: str, prompt: str) -> http.client.HTTPConnection:
        """Begin a turn that streams, and return its connection when the first event is there."""
        connection = self.connect()
        body = json.dumps({"prompt": prompt})
        connection.request("POST", "/invocations", body, headers_of(session))
        reply = connection.getresponse()
        if reply.status != 200 or not reply.readline():
            raise RuntimeError(f"{reply.status}")
        return connection

    def ping(self, *, is_new: bool) -> float:
        """Ask /ping, on the connection that is kept or a new one; return how many ms it took."""
        time.sleep(0.01)
        began = time.perf_counter()
        connection = self.connect() if is_new else self.connection
        connection.request("GET", "/ping")
        connection.getresponse().read()
        if is_new:
            connection.close()
        return (time.perf_counter() - began) * 1000

    def cpu(self) -> float:
        """How many milliseconds of CPU the process has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) * 1000 / TICKS

    def megabytes(self) -> float:
        """How much memory the process has."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        (size,) = (line.split()[1] for line in lines if line.startswith("VmRSS:"))
        return int(size) / 1024


@contextmanager
def running(subject: Subject, **settings: Any) -> Iterator[Running]:
    """Start a server and end it by its pid."""
    port = free_port()
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": tempfile.gettempdir(),
        "PORT": str(port),
        "HISTORY_MESSAGES": "40",
        "NODE_NO_WARNINGS": "1",
        **subject.settings,
        **{name: str(value) for name, value in settings.items()},
    }
    with tempfile.TemporaryFile() as log:
        began = time.perf_counter()
        process = subprocess.Popen(
            subject.command,
            cwd=subject.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            while not answers(port):
                if process.poll() is not None or time.perf_counter() - began > LIMIT:
                    log.seek(0)
                    raise RuntimeError(f"{subject.name} did not start: {log.read().decode()}")
                time.sleep(0.002)
            yield Running(process, port, began, time.perf_counter() - began)
        finally:
            # As they are ended where they are deployed, which is when Node keeps what it compiled.
            process.terminate()
            try:
                process.wait(timeout=15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def answers(port: int) -> bool:
    """Whether a server answers /ping there."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/ping")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def headers_of(session: str) -> dict[str, str]:
    """The headers of a request for a turn whose reply streams."""
    kinds = {"Content-Type": "application/json", "Accept": "text/event-stream"}
    return {HEADER: session, **kinds}


def session() -> str:
    return f"session-{uuid.uuid4()}"
