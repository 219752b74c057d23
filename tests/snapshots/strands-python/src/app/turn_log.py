"""The line that each turn leaves in the log: its outcome, its duration and its tokens."""

import asyncio
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from .contract import AgentError, TurnRequest

log = logging.getLogger(__name__)


@dataclass
class TurnReport:
    """What a turn says about itself, also when it fails; 0 is unknown."""

    turn: int = 0
    outcome: str = "committed"  # or replayed, cancelled, internal_error, or a type in ERRORS
    input_tokens: int = 0
    output_tokens: int = 0


@contextmanager
def logged(request: TurnRequest) -> Iterator[TurnReport]:
    """Log one line at the end of a turn: a warning when the turn failed."""
    report, start, detail = TurnReport(), time.monotonic(), ""
    try:
        yield report
    except BaseException as error:
        report.outcome = outcome_of(error)
        detail = getattr(error, "detail", "")
        raise
    finally:
        fields = {
            "turn": report.turn,
            "outcome": report.outcome,
            "ms": f"{(time.monotonic() - start) * 1000:.0f}",
            "tokens_in": report.input_tokens,
            "tokens_out": report.output_tokens,
            "detail": detail,
        }
        is_failure = report.outcome not in {"committed", "replayed", "cancelled"}
        text = " ".join(f"{name}={value}" for name, value in fields.items() if value)
        level = logging.WARNING if is_failure else logging.INFO
        log.log(level, "session %s: %s", request.session_id, text)


def outcome_of(error: BaseException) -> str:
    """Name how an error ends a turn."""
    if isinstance(error, AgentError):
        return error.type
    return "cancelled" if isinstance(error, asyncio.CancelledError) else "internal_error"
