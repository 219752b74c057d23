"""Every setting: its environment variable, its default and what it allows."""

import os
import re
from dataclasses import dataclass, field, fields
from typing import Any

from dotenv import dotenv_values


def whole(default: int, lowest: int, highest: int) -> Any:
    """A setting that is a whole number in a range."""
    return field(default=default, metadata={"range": (lowest, highest)})


@dataclass(frozen=True)
class Settings:
    """The settings of one process; README.md says what each one does."""

    model: str = "offline"
    host: str = "127.0.0.1"
    port: int = whole(8080, 0, 65_535)
    session_capacity: int = whole(128, 1, 1_000_000)
    session_idle_seconds: int = whole(3600, 1, 31_536_000)
    session_queue: int = whole(8, 0, 10_000)
    history_messages: int = whole(40, 1, 100_000)
    max_steps: int = whole(10, 1, 1_000)
    turn_timeout_seconds: int = whole(300, 1, 86_400)
    max_prompt_chars: int = whole(100_000, 1, 100_000_000)
    max_body_bytes: int = whole(1_048_576, 1, 1_000_000_000)
    shutdown_grace_seconds: int = whole(8, 0, 86_400)

    @property
    def is_loopback(self) -> bool:
        """Whether only programs of this machine can reach the server."""
        return self.host in {"localhost", "::1"} or self.host.startswith("127.")


def diagnostic(
    id: str, message: str, severity: str = "error", file: str = "environment", line: int = 0
) -> dict[str, Any]:
    """One finding of `check`; severity is `error` or `warning`, line 0 is no line."""
    return {"id": id, "severity": severity, "file": file, "line": line, "message": message}


def read_settings() -> tuple[Settings, list[dict[str, Any]]]:
    """The settings in the environment and .env, and what is wrong there. Blank means unset."""
    found: dict[str, Any] = {}
    wrong: list[dict[str, Any]] = []
    try:
        for name, value in dotenv_values(".env", interpolate=False).items():
            os.environ.setdefault(name, value or "")
    except (OSError, ValueError) as error:
        wrong.append(diagnostic("SET-ENV-FILE", f"The file .env cannot be read: {error}."))
    for setting in fields(Settings):
        name, text = setting.name.upper(), os.environ.get(setting.name.upper(), "").strip()
        low, high = setting.metadata.get("range", (0, 0))
        if text and not high:
            found[setting.name] = text
        elif re.fullmatch("[0-9]{1,10}", text) and low <= int(text) <= high:
            found[setting.name] = int(text)
        elif text:
            what = f"{name} is {text[:80]!r}: allowed is a whole number from {low} to {high}."
            wrong.append(diagnostic(f"SET-{name}", what))
    return Settings(**found), wrong
