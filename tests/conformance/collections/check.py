"""Checks the projects that stdin lists, {folder, agent_id, against}, in one process of a render.

With `variables` in it, these are the environment, and the secrets are looked up there too.
"""

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from app.memory.options import Options  # type: ignore[import-not-found]
from app.memory.project import check_project  # type: ignore[import-not-found]
from app.memory.secrets_check import check_secrets  # type: ignore[import-not-found]


def check(one: dict[str, Any]) -> list[dict[str, Any]]:
    folder, agent_id = Path(one["folder"]), one["agent_id"]
    found: list[dict[str, Any]] = check_project(folder, agent_id, one["against"])
    if one.get("variables") is None:
        return found
    path = os.environ["PATH"]  # of git
    os.environ.clear()
    os.environ.update(one["variables"], HOME=str(folder), PATH=path)
    found += check_secrets(folder, replace(Options(), agent_id=agent_id))
    return found


json.dump([check(one) for one in json.load(sys.stdin)], sys.stdout)
