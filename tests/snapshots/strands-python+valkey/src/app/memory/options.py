"""Every setting of the memory: its environment variable, its default and what it allows."""

import os
import re
from dataclasses import dataclass, fields
from typing import Any

from ..settings import diagnostic, whole


@dataclass(frozen=True)
class Options:
    """The settings of the memory of one process; collections/README.md says what each one does."""

    store_timeout_seconds: int = whole(3, 1, 60)
    max_snapshot_bytes: int = whole(8_388_608, 1024, 1_000_000_000)
    checkpoints: int = whole(0, 0, 1000)
    secret_cache_seconds: int = whole(300, 0, 86_400)
    agent_id: str | None = None  # None: that of the only file in agents/


def read_options() -> tuple[Options, list[dict[str, Any]]]:
    """The options in the environment, and what is wrong there. Blank means unset."""
    found: dict[str, Any] = {}
    wrong: list[dict[str, Any]] = []
    for option in fields(Options):
        name, text = option.name.upper(), os.environ.get(option.name.upper(), "").strip()
        low, high = option.metadata.get("range", (0, 0))
        if text and not high:
            found[option.name] = text
        elif re.fullmatch("[0-9]{1,10}", text) and low <= int(text) <= high:
            found[option.name] = int(text)
        elif text:
            what = f"{name} is {text[:80]!r}: allowed is a whole number from {low} to {high}."
            wrong.append(diagnostic(f"SET-{name}", what))
    return Options(**found), wrong
