"""The server process: its listener, signals and shutdown."""

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from types import FrameType

import click
import uvicorn
from starlette.types import ASGIApp

from ..app import AgentApp
from ..late_errors import survive_late_errors
from ..log import announce, log_as, log_unexpected
from ..project import Project
from ..runtime import Runtime, start_runtime
from ..settings import CoreSettings
from .connection import Connection, max_connections
from .reload import take_over, watch_parent
from .server import create_app

REPEAT_SECONDS = 1  # signals that follow the first sooner are copies
HARNESS = __name__.removesuffix(".http.serve")


def run_server(app: AgentApp) -> None:
    """Serve until a signal arrives."""
    is_orphan = watch_parent()
    for name in (Project.package.name, HARNESS):
        logging.getLogger(name).setLevel("INFO")
    settings, findings = app.read_settings()
    log_as(settings.log_format)
    runtime = start_runtime(app, settings, findings)
    with asyncio.Runner() as runner:
        survive_late_errors(runner.get_loop())
        serving = runner.get_loop().create_task(_serve(runtime, is_orphan))
        try:
            while not serving.done():
                try:
                    runner.get_loop().run_until_complete(serving)
                except SystemExit as error:  # from a tool's task; it stops the loop
                    log_unexpected(error)
            serving.result()
        except BaseException:
            runner.run(runtime.close())
            raise


def listen(settings: CoreSettings) -> socket.socket:
    """Return a socket that listens on HOST and PORT. Raises ClickException."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        return socket.create_server((settings.host, settings.port), family=family)
    except OSError as error:
        why = str(error.strerror).split(" (")[0].lower()
        where = f"HOST {settings.host}, PORT {settings.port}"
        raise click.ClickException(f"Cannot listen on {where}: {why}.") from error


class _Server(uvicorn.Server):
    """A server that drains at the first signal and exits at the next, if it is a second later.

    `uv run` forwards signals, so a signal to its process group arrives twice.
    """

    def __init__(self, app: ASGIApp, seconds: int, is_orphan: Callable[[], bool]) -> None:
        config = uvicorn.Config(app, http=Connection, log_config=None, server_header=False)
        config.timeout_keep_alive = seconds
        config.timeout_graceful_shutdown = 1  # for clients that do not read
        super().__init__(config)
        self.loop = asyncio.get_running_loop()
        self.signalled = asyncio.Event()
        self.signalled_at = float("inf")
        self.is_orphan = is_orphan
        # `nohup` ignores SIGHUP.
        if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
            signal.signal(signal.SIGHUP, self.handle_exit)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if now - self.signalled_at >= REPEAT_SECONDS:
            os._exit(1)
        self.signalled_at = min(self.signalled_at, now)
        self.loop.call_soon_threadsafe(self.signalled.set)

    def close_connections(self) -> None:
        """Close idle connections now and others after their response.

        With its next connection, a client reaches a replica.
        """
        for connection in list(self.server_state.connections):
            if isinstance(connection, Connection) and connection.cycle:
                connection.shutdown()

    async def on_tick(self, counter: int) -> bool:
        if self.is_orphan():
            self.signalled.set()
        for connection in list(self.server_state.connections):
            if isinstance(connection, Connection):
                connection.check_time()
        return await super().on_tick(counter)


async def _serve(runtime: Runtime, is_orphan: Callable[[], bool]) -> None:
    settings = runtime.settings
    app = create_app(runtime)
    listener = listen(settings)
    await runtime.open()
    Connection.max_connections = max_connections(settings.max_turns)
    server = _Server(app, settings.request_timeout_seconds, is_orphan)
    hand_over = take_over(runtime.sessions.store)
    running = asyncio.create_task(server.serve([listener]))
    if not settings.is_loopback and not settings.api_token:
        risk = f"other machines can reach {settings.host}, and callers are not authenticated"
        announce(f"Warning: {risk}: set API_TOKEN.")
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    address = f"http://{host}:{listener.getsockname()[1]}"
    for line in (*runtime.describe(address), f"Listening on {address}"):
        announce(line)
    # Collections skip loaded modules: p99 of a turn at 400 messages is 13 ms instead of 42.
    gc.freeze()
    gc.enable()
    await server.signalled.wait()
    server.close_connections()
    await runtime.turns.drain(settings.shutdown_grace_seconds)
    await runtime.close()
    hand_over()
    server.should_exit = True
    await running
    sys.stdout.flush()
    os._exit(0)  # a hanging thread of a tool or client would keep the process alive
