"""Takes from this Python what it does not have on Windows, before anything else is imported."""

import asyncio
import os
import select
import signal
import sys
from typing import Any

MODULES = ("readline", "fcntl", "termios", "tty", "pty", "pwd", "grp", "syslog")
OS = ("fork", "forkpty", "getuid", "getpgid", "killpg", "mkfifo", "openpty", "setsid", "uname")
SIGNALS = ("SIGHUP", "SIGKILL", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGWINCH", "SIGTSTP")


def refuse(*_: Any, **__: Any) -> None:
    """Stand for what the loop of Windows has not."""
    raise NotImplementedError


def select_sockets(*given: Any) -> Any:
    """Refuse descriptors of files and consoles."""
    if any(isinstance(one, int) for group in given[:3] for one in group):
        raise OSError("an operation was attempted on something that is not a socket")
    return original(*given)


sys.modules.update(dict.fromkeys(MODULES))  # type: ignore[arg-type]
for module, names in ((os, OS), (signal, SIGNALS)):
    for name in names:
        if hasattr(module, name):
            delattr(module, name)
for method in ("add_signal_handler", "remove_signal_handler", "add_reader", "add_writer"):
    setattr(asyncio.SelectorEventLoop, method, refuse)
original, select.select = select.select, select_sockets
