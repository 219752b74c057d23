"""`serve --reload`: a child process serves; after a change its turns drain, and it starts anew."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import click

SOURCES = (Path(__file__).parent, Path("agents"), Path("collections"))
FILES = (Path(".env"), Path(".mcp.json"))
SERVE = [sys.executable, "-c", "from app.main import cli; cli()", "serve"]


def serve_anew() -> None:
    """Serve until a signal ends it."""
    signals: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: signals.append(number))
    code = 0
    while not signals:
        before = changes = _stamps()
        child = subprocess.Popen(SERVE)
        while not signals and changes == before:
            time.sleep(0.5)
            changes = _stamps()
        if not signals:
            path = min(path for path, _ in before ^ changes)
            click.echo(f"{path} has changed: the server restarts when its turns have ended.")
        if signal.SIGINT not in signals:  # a terminal has sent that to the child, too
            child.terminate()
        code = child.wait()
    sys.exit(code)


def _stamps() -> set[tuple[str, float]]:
    """Return the files and when they changed; no hidden file, no backup and no bytecode."""
    stamps = set()
    for path in [*FILES, *(path for folder in SOURCES for path in folder.rglob("[!.]*[!~]"))]:
        with suppress(OSError):  # it may be gone by now
            if path.is_file() and "__pycache__" not in path.parts:
                stamps.add((os.path.relpath(path), path.stat().st_mtime))
    return stamps
