"""A command in a terminal of its own, typed at and read like one: bounded in time."""

import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pyte

from tests.conformance.provider import PATIENCE

# The terminal becomes the one that sends the signals of its keys.
LEADER = (
    "import fcntl, os, sys, termios; os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0);"
    " os.execvp(sys.argv[1], sys.argv[1:])"
)
SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
CTRL_C, CTRL_D, ENTER, LEFT, UP = "\x03", "\x04", "\r", "\x1b[D", "\x1b[A"
PROMPT = r">[ \b]*$"  # a line editor may move behind the blank, and not write it


class PseudoTerminal:
    """`seen` is all that the command has written, with its escape sequences."""

    def __init__(self, command: Sequence[str], folder: Path, environment: Mapping[str, str]):
        own = {"PATH": os.environ["PATH"], "TERM": "xterm-256color", "XDG_STATE_HOME": str(folder)}
        self._end, inside = os.openpty()
        self.resize(200)
        self.process: subprocess.Popen[bytes] = subprocess.Popen(
            [sys.executable, "-c", LEADER, *command],
            stdin=inside,
            stdout=inside,
            stderr=inside,
            cwd=folder,
            env={**own, **environment},
        )
        os.close(inside)
        self.seen, self._read = "", 0

    def resize(self, columns: int) -> None:
        """Change the width; the command gets SIGWINCH."""
        fcntl.ioctl(self._end, termios.TIOCSWINSZ, struct.pack("4H", 30, columns, 0, 0))

    def type(self, keys: str) -> None:
        time.sleep(0.2)  # Python notices a signal only once it waits for keys behind its prompt
        os.write(self._end, keys.encode())

    def expect(self, form: str, within: float = PATIENCE) -> str:
        """Wait for a text of this form behind what was expected before; return it as shown."""
        deadline = time.monotonic() + within
        while not (found := re.search(form, self.shown)):
            left = deadline - time.monotonic()
            if left <= 0 or not self._more(left):
                raise AssertionError(f"there was never {form!r}:\n{self.seen!r}")
        # From the end of that text on, in what was written.
        text, rest = self.shown[: found.end()], self.shown[found.end() :]
        self._read = len(self.seen)
        while self.shown != rest:
            self._read -= 1
        return text

    def exit_code(self) -> int:
        """Read what comes until it has ended."""
        while self._more(PATIENCE):
            pass
        return self.process.wait(PATIENCE)

    def close(self) -> None:
        with suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        os.close(self._end)

    @property
    def shown(self) -> str:
        return SEQUENCE.sub("", self.seen[self._read :])

    @property
    def lines(self) -> list[str]:
        """The lines that a person sees, also those that have scrolled away, without blank ones."""
        screen = pyte.HistoryScreen(200, 30, history=1000)
        pyte.Stream(screen).feed(self.seen)
        rows = [*screen.history.top, *(screen.buffer[row] for row in range(screen.lines))]
        texts = ["".join(row[column].data for column in range(200)) for row in rows]
        return [text.rstrip() for text in texts if text.strip()]

    def _more(self, within: float) -> bool:
        if not select.select([self._end], [], [], within)[0]:
            return False
        try:
            data = os.read(self._end, 1 << 16)
        except OSError:  # nobody writes to it any more
            return False
        self.seen += data.decode(errors="replace")
        return bool(data)


def screen(written: str, columns: int = 200) -> list[str]:
    """The lines that a terminal that is high enough shows in the end, above the cursor."""
    rows = written.count("\n") + len(written) // columns + 1
    terminal = pyte.Screen(columns, rows)
    pyte.Stream(terminal).feed(written)
    return [line.rstrip() for line in terminal.display[: terminal.cursor.y]]
