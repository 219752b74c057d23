"""The log: error descriptions without prompts, and escaping of logged text."""

import json
import logging
import os
import re
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from traceback import format_tb, walk_tb
from typing import Any

import click

from .contract import BUSY_KINDS, CONTROL, ERRORS, AgentError, Turn
from .project import Project

# Providers' names of temporary errors, in a body or a stream. The log omits other names, because
# they may quote a prompt.
TEMPORARY_KINDS = BUSY_KINDS | {
    "api_error",
    "deadline_exceeded",
    "internal",
    "internal_error",
    "internal_server_error",
    "internalservererror",
    "server_error",
    "timeout",
    "timeout_error",
}

log = logging.getLogger(__name__)


class Formatter(logging.Formatter):
    """Indents continuation lines, so that logged text cannot forge an entry. Times are UTC."""

    converter = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def format(self, record: logging.LogRecord) -> str:
        labels = getattr(record, "labels", {})
        text = " ".join([super().format(record), *(f"{key}={labels[key]}" for key in labels)])
        return re.sub(CONTROL, "\ufffd", text).replace("\n", "\n  ")


class JsonFormatter(Formatter):
    """Formats each entry as a JSON object on a line, with a turn's facts as fields."""

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": self.formatTime(record),
            "level": record.levelname,
            "message": logging.Formatter.format(self, record),
            **getattr(record, "facts", {}),
            **getattr(record, "labels", {}),
        }
        return json.dumps(entry, separators=(",", ":"))


def log_as(form: str) -> None:
    """Set the format of the log: a value of LOG_FORMAT."""
    for handler in logging.getLogger().handlers if form == "json" else []:
        handler.setFormatter(JsonFormatter())


def announce(text: str) -> None:
    """Print a startup line, as a log entry if the log is JSON."""
    formatters = [handler.formatter for handler in logging.getLogger().handlers]
    if any(isinstance(formatter, JsonFormatter) for formatter in formatters):
        record = logging.makeLogRecord({"levelname": "INFO", "msg": text})
        text = JsonFormatter().format(record)
    click.echo(text)


def log_turn(turn: Turn, model: str) -> None:
    """Log the known facts of a turn, as in `session s: turn=1 outcome=committed ms=12`.

    The facts include the turn's model only if it is not `model`, the value of MODEL. A failed turn
    is a warning; a cancelled turn is not.
    """
    facts = {
        "turn": turn.number,
        "outcome": turn.outcome,
        "ms": turn.milliseconds,
        "tokens_in": turn.usage.input_tokens,
        "tokens_cached": turn.usage.cached_tokens,
        "tokens_out": turn.usage.output_tokens,
        "model": turn.model if turn.model != model else "",
        "detail": turn.detail,
    }
    fields = {name: value for name, value in facts.items() if value or name == "ms"}
    level = logging.WARNING if turn.outcome in ERRORS else logging.INFO
    text = " ".join(f"{name}={value}" for name, value in fields.items())
    extra = {"facts": {"session": turn.session_id, **fields}}
    log.log(level, "session %s: %s", turn.session_id, text, extra=extra)


def describe(error: BaseException) -> str:
    """Return the kinds of an error and its causes, without its text, which may quote a prompt.

    A kind is the class with the HTTP status, the AWS error code, the reason of a TLS failure or the
    operating system's message, if any, as in `ConnectError < ConnectionRefusedError (Connection
    refused)`.
    """
    return " < ".join(map(_kind, causes_of(error)))


def causes_of(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and its causes, each once."""
    seen_ids = set[int]()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen_ids:
        yield cause
        seen_ids.add(id(cause))
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)


def place_of(error: BaseException) -> str:
    """Return the project's lines in an error's traceback, the innermost first.

    The form is ` at src/my_agent/orders.py:7 < src/my_agent/agent.py:34`, or "" if the traceback
    has no such line.
    """
    places = list[str]()
    for frame, line in walk_tb(error.__traceback__):
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(Project.package):
            places.insert(0, f"{Project.name_of(path)}:{line}")
    return " at " + " < ".join(places[:3]) if places else ""


def as_agent_error(error: Exception) -> AgentError:
    """Return an AgentError; log any other error and hide it from the caller."""
    if isinstance(error, AgentError):
        return error
    log_unexpected(error)
    return AgentError("internal_error", detail=describe(error))


def log_unexpected(error: BaseException) -> None:
    """Log the kinds and the traceback of an error, without its text, which may quote a prompt."""
    log.error("%s\n%s", describe(error), "".join(format_tb(error.__traceback__)))


def _kind(error: BaseException) -> str:
    kind = type(error).__name__
    details = []
    response = getattr(error, "response", None)
    status = getattr(error, "status_code", None)
    if isinstance(response, dict) and "Error" in response:  # of an AWS client
        details += [response["Error"].get("Code")]
        status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    body_status, name = _status_and_kind(getattr(error, "body", None))
    if body_status and status in {None, 200}:  # 200: a stream failed after it had started
        status = body_status
    if status:
        details += [f"HTTP {status}"]
    details += [name]
    if isinstance(error, ssl.SSLError):  # its errno is not one of the operating system
        details += [getattr(error, "verify_message", None) or error.reason]
    elif isinstance(error, OSError) and (error.errno or 0) > 0:
        details += [os.strerror(error.errno or 0)]
    text = ", ".join(str(detail) for detail in details if detail not in (None, kind))
    return kind + (f" ({text})" if text else "")


def _status_and_kind(body: Any) -> tuple[int | None, str | None]:
    """Return the HTTP status and the kind in the body of a provider's error."""
    if isinstance(body, dict) and isinstance(body.get("error"), dict):
        body = body["error"]
    if not isinstance(body, dict):
        return None, None
    values = [str(body.get(name, "")) for name in ("code", "type", "status", "statusCode")]
    statuses = [int(value) for value in values if re.fullmatch("[45][0-9][0-9]", value)]
    kinds = [value.lower() for value in values if value.lower() in TEMPORARY_KINDS]
    return next(iter(statuses), None), next(iter(kinds), None)
