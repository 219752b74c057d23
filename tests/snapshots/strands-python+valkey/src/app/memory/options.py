"""Every setting of the memory: its environment variable, its default and what it allows."""

import os
import re
from dataclasses import dataclass, field, fields
from typing import Any

from ..settings import diagnostic, whole

PROJECT = "[a-z0-9][a-z0-9_-]{0,63}"  # what AgentCore takes as the value of a variable


@dataclass(frozen=True)
class Options:
    """The settings of the memory of one process; collections/README.md says what each one does."""

    store_timeout_seconds: int = whole(3, 1, 60)
    max_snapshot_bytes: int = whole(8_388_608, 1024, 1_000_000_000)
    checkpoints: int = whole(0, 0, 1000)
    secret_cache_seconds: int = whole(300, 0, 86_400)
    recall_timeout_seconds: int = whole(2, 1, 60)
    add_memory_tool: int = whole(0, 0, 1)
    project_id: str | None = field(default=None, metadata={"form": PROJECT})
    agent_id: str | None = None  # None: that of the only file in agents/


def read_options() -> tuple[Options, list[dict[str, Any]]]:
    """The options in the environment, and what is wrong there. Blank means unset."""
    found: dict[str, Any] = {}
    wrong: list[dict[str, Any]] = []
    for option in fields(Options):
        name, text = option.name.upper(), os.environ.get(option.name.upper(), "").strip()
        low, high = option.metadata.get("range", (0, 0))
        allowed = f"a whole number from {low} to {high}"
        if not high:
            allowed = "1 to 64 of a-z 0-9 _ -, not first _ or -"
        if text and not high and re.fullmatch(option.metadata.get("form", ".*"), text):
            found[option.name] = text
        elif re.fullmatch("[0-9]{1,10}", text) and low <= int(text) <= high:
            found[option.name] = int(text)
        elif text:
            what = f"{name} is {text[:80]!r}: allowed is {allowed}."
            wrong.append(diagnostic(f"SET-{name}", what))
    return Options(**found), wrong
