"""The line that each turn leaves in the log: its outcome, its duration and its tokens."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

from .contract import TurnReport, TurnRequest

log = logging.getLogger(__name__)


@contextmanager
def logged(request: TurnRequest, report: TurnReport) -> Iterator[None]:
    """Log one line at the end of a turn: a warning when the turn failed."""
    start = time.monotonic()
    try:
        yield
    except BaseException as error:
        report.fail(error)
        raise
    finally:
        report.milliseconds = round((time.monotonic() - start) * 1000)
        fields = {
            "turn": report.turn,
            "outcome": report.outcome,
            "ms": str(report.milliseconds),
            "tokens_in": report.input_tokens,
            "tokens_out": report.output_tokens,
            "detail": report.detail,
        }
        text = " ".join(f"{name}={value}" for name, value in fields.items() if value)
        level = logging.WARNING if report.is_failure else logging.INFO
        log.log(level, "session %s: %s", request.session_id, text)
