"""The log line of each turn: its outcome, its duration and its tokens."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

from .contract import Turn

log = logging.getLogger(__name__)


@contextmanager
def logged(turn: Turn) -> Iterator[None]:
    """Log one line at the end of a turn: a warning if the turn failed."""
    start = time.monotonic()
    try:
        yield
    except BaseException as error:
        turn.fail(error)
        raise
    finally:
        turn.milliseconds = round((time.monotonic() - start) * 1000)
        fields = {
            "turn": turn.number,
            "outcome": turn.outcome,
            "ms": str(turn.milliseconds),
            "tokens_in": turn.input_tokens,
            "tokens_out": turn.output_tokens,
            "detail": turn.detail,
        }
        text = " ".join(f"{name}={value}" for name, value in fields.items() if value)
        level = logging.WARNING if turn.is_failure else logging.INFO
        log.log(level, "session %s: %s", turn.session_id, text)
