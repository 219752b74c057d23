"""Servers that only one test uses end with it: a long run has hundreds of them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar


class OwnServer(Protocol):
    """A server that a test may have started for itself."""

    is_shared: bool

    def signal(self) -> None:
        """Ask it to end."""


STARTED: list[OwnServer] = []  # since a test was called
S = TypeVar("S", bound=OwnServer)


def shared(server: S) -> S:
    """Let a server run beyond the test that started it."""
    server.is_shared = True
    return server


@contextmanager
def ended() -> Iterator[None]:
    """Ask the servers that are started here, and are not shared, to end; nobody waits for them."""
    STARTED.clear()
    yield
    for server in STARTED:
        if not server.is_shared:
            server.signal()
    STARTED.clear()
