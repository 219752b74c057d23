"""`serve --reload`: a child process serves; after a change its turns drain, and it restarts."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from ..project import Project
from ..sessions.session_store import InProcess, SessionStore

FOLDERS = (Path("agents"), Path("collections"))
FILES = (Path(".env"), Path(".mcp.json"))
# Names the open file in which a child leaves its sessions to the next one; other processes have
# neither. The file has no name, so nothing of it outlives them.
HANDED_OVER = "RELOAD_FD"


def serve_with_reload() -> None:
    """Serve until a signal ends it."""
    signals, code, options = list[int](), 0, dict[str, Any]()
    child: subprocess.Popen[bytes] | None = None

    def note(number: int, _: Any) -> None:
        if signals and child:
            child.send_signal(number)
        signals.append(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, note)
    program = f"from {Project.package.name}.main import cli; cli()"
    sessions = tempfile.TemporaryFile()  # noqa: SIM115 (open until this process ends)
    if os.name == "posix":  # Windows would kill a child, which has no time to leave anything
        options["pass_fds"] = [sessions.fileno()]
        options["env"] = os.environ | {HANDED_OVER: str(sessions.fileno())}
    while not signals:
        before = changes = _modification_times()
        child = subprocess.Popen([sys.executable, "-c", program, "serve"], **options)
        while not signals and changes == before:
            time.sleep(0.5)
            changes = _modification_times()
        if not signals:
            path = min(path for path, _ in before ^ changes)
            click.echo(f"{path} has changed: the server restarts when its turns have ended.")
        # A terminal has sent SIGINT to the child, too; who has not sends another signal.
        if signal.SIGINT not in signals:
            child.terminate()
        code = child.wait()
    sys.exit(code)


def take_over(store: SessionStore) -> Callable[[], None]:
    """Continue the sessions of the previous child; return what leaves them to the next one."""
    number = int(os.environ.pop(HANDED_OVER, "") or 0)
    if not number or not isinstance(store, InProcess):
        return lambda: None
    os.set_inheritable(number, False)  # not for the programs that tools start
    with open(number, "r+", encoding="utf-8", closefd=False) as file:
        file.seek(0)
        text = file.read()
        file.truncate(0)  # a child that crashes leaves nothing, and so nothing old
    store.restore(json.loads(text or "{}"))

    def hand_over() -> None:
        with open(number, "w", encoding="utf-8") as file:
            file.seek(0)
            json.dump(store.dump(), file)

    return hand_over


def _modification_times() -> set[tuple[str, float]]:
    """Return the files and when they changed; no hidden file, no backup and no bytecode."""
    stamps = set()
    folders = (Project.package, *FOLDERS)
    for path in [*FILES, *(path for folder in folders for path in folder.rglob("[!.]*[!~]"))]:
        with suppress(OSError):  # it may be gone by now
            if path.is_file() and "__pycache__" not in path.parts:
                stamps.add((os.path.relpath(path), path.stat().st_mtime))
    return stamps
