"""`serve --reload`: a child process serves; after a change it drains and restarts."""

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
# The variable with the file descriptor that passes sessions to the next child. The file has no
# name, so it disappears with these processes.
SESSIONS_FD = "RELOAD_FD"
# The variable with the process id of `serve --reload`.
PARENT_PID = "RELOAD_PID"


def serve_with_reload() -> None:
    """Serve until a signal arrives; restart after a change."""
    signals = list[int]()
    code = 0
    options = dict[str, Any]()
    child: subprocess.Popen[bytes] | None = None

    def note(number: int, _: Any) -> None:
        if signals and child:
            child.send_signal(number)
        signals.append(number)

    numbers = [signal.SIGINT, signal.SIGTERM]
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    for number in numbers:
        signal.signal(number, note)
    program = f"from {Project.package.name}.main import cli; cli()"
    sessions = tempfile.TemporaryFile()  # noqa: SIM115 (open until this process ends)
    if os.name == "posix":  # Windows kills the child, which cannot save its sessions
        options["pass_fds"] = [sessions.fileno()]
        own = {SESSIONS_FD: str(sessions.fileno()), PARENT_PID: str(os.getpid())}
        options["env"] = os.environ | own
    while not signals:
        before = changes = _modification_times()
        child = subprocess.Popen([sys.executable, "-c", program, "serve"], **options)
        while not signals and changes == before:
            time.sleep(0.5)
            changes = _modification_times()
        if not signals:
            path = min(path for path, _ in before ^ changes)
            click.echo(f"{path} changed: the server restarts after its running turns.")
        # Ctrl-C in a terminal reaches the child too; other callers must signal twice.
        if signal.SIGINT not in signals:
            child.terminate()
        code = child.wait()
    sys.exit(code)


def watch_parent() -> Callable[[], bool]:
    """Return a function that reports whether the parent, `serve --reload`, has exited."""
    parent = int(os.environ.pop(PARENT_PID, "") or 0)
    return lambda: parent > 0 and os.getppid() != parent


def take_over(store: SessionStore) -> Callable[[], None]:
    """Restore the previous child's sessions; return a function that passes them on."""
    number = int(os.environ.pop(SESSIONS_FD, "") or 0)
    if not number or not isinstance(store, InProcess):
        return lambda: None
    os.set_inheritable(number, False)  # not for the child processes of tools
    with open(number, "r+", encoding="utf-8", closefd=False) as file:
        file.seek(0)
        text = file.read()
        file.truncate(0)  # a crashed child must not pass on old sessions
    store.restore(json.loads(text or "{}"))

    def hand_over() -> None:
        with open(number, "w", encoding="utf-8") as file:
            file.seek(0)
            json.dump(store.dump(), file)

    return hand_over


def _modification_times() -> set[tuple[str, float]]:
    """Return watched files and their times, without hidden files, backups and bytecode."""
    stamps = set()
    folders = (Project.package, *FOLDERS)
    for path in [*FILES, *(path for folder in folders for path in folder.rglob("[!.]*[!~]"))]:
        with suppress(OSError):  # the file may be deleted
            if path.is_file() and "__pycache__" not in path.parts:
                stamps.add((os.path.relpath(path), path.stat().st_mtime))
    return stamps
