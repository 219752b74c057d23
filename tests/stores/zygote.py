"""A process that has imported what renders in Python need, and forks whenever one is to run.

Importing a framework and a vendor's client takes three seconds. Run by the Python of an environment
as `python zygote.py SOCKET`. A request is {"words", "source", "folder", "environment"} with the
descriptors of stdout and stderr, and of stdin before them if it has one; the replies are the id of
the new process and, at its end, its exit code. What is in the folder `source`, which is the
render's own, is imported by the new process, and only there. It ends when its stdin does.
"""

import ast
import atexit
import gc
import json
import os
import selectors
import signal
import socket
import sys
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from runpy import run_module, run_path

LATE = ("boto3", "openai.resources.chat")  # which a render imports with its first turn


@cache
def prepare(source: str) -> None:
    """Import what the modules of a render import, but for these modules themselves."""
    for path in Path(source).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                load(*(each.name for each in node.names))
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                load(node.module, *(f"{node.module}.{each.name}" for each in node.names))
    load(*LATE)
    gc.collect()
    gc.freeze()


def load(*names: str) -> None:
    """Import modules, and leave out what cannot be imported: a command will say so itself."""
    for name in names:
        with suppress(ImportError):
            import_module(name)


def next_command(path: str) -> tuple[dict[str, object], list[int]]:
    """Serve the tests; return, in each forked process, what that process is to run."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(f"{path}.new")
    listener.listen(64)
    Path(f"{path}.new").rename(path)
    woken, wake = socket.socketpair()
    for end in (woken, wake):
        end.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake.fileno())
    running: dict[int, socket.socket] = {}
    with selectors.DefaultSelector() as selector:
        for source in (listener, woken, sys.stdin):
            selector.register(source, selectors.EVENT_READ)
        while True:
            ready = [key.fileobj for key, _ in selector.select()]
            if sys.stdin in ready:
                os._exit(0)
            if woken in ready:
                woken.recv(4096)
                tell_ends(running)
            if listener in ready:
                client, _ = listener.accept()
                data, descriptors, _, _ = socket.recv_fds(client, 1 << 17, 3)
                request = json.loads(data)
                prepare(request["source"])
                pid = os.fork()
                if pid == 0:
                    break
                for descriptor in descriptors:
                    os.close(descriptor)
                client.send(b"%d" % pid)
                running[pid] = client
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for other in (listener, woken, wake, client, *running.values()):
        other.close()
    return request, descriptors


def tell_ends(running: dict[int, socket.socket]) -> None:
    """Reply to those whose process has ended."""
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        with running.pop(pid) as client, suppress(OSError):
            client.send(b"%d" % os.waitstatus_to_exitcode(status))


def become(request: dict[str, object], descriptors: list[int]) -> None:
    """Take the folder, the environment and the streams of the command."""
    if len(descriptors) == 2:
        descriptors = [os.open(os.devnull, os.O_RDONLY), *descriptors]
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    sys.stdin = os.fdopen(0, encoding="utf-8")
    sys.stdout, sys.stderr = (os.fdopen(number, "w", 1, encoding="utf-8") for number in (1, 2))
    os.chdir(str(request["folder"]))
    os.environ.clear()
    os.environ.update(request["environment"])  # type: ignore[call-overload]
    path = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [*filter(None, path), str(request["source"])]
    sys.dont_write_bytecode = "PYTHONDONTWRITEBYTECODE" in os.environ
    sys.argv = list(request["words"])  # type: ignore[call-overload]
    sys.executable = str(Path(sys.argv[0]).with_name("python"))


def run() -> None:
    """Run a script of the environment, or the module behind `python -m`."""
    if sys.argv[1] == "-m":
        del sys.argv[:2]
        sys.path.insert(0, str(Path.cwd()))
        run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    become(*next_command(sys.argv[1]))
    try:
        run()
    except SystemExit as end:  # taking the imported modules down would cost half a second
        atexit._run_exitfuncs()
        sys.stdout.flush()
        os._exit(end.code if isinstance(end.code, int) else 1)
