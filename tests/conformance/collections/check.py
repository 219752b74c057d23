"""Checks the projects that stdin lists, {folder, agent_id, against}, in one process of a render."""

import json
import sys
from pathlib import Path

from app.memory.project import check_project  # type: ignore[import-not-found]

projects = json.load(sys.stdin)
json.dump(
    [check_project(Path(one["folder"]), one["agent_id"], one["against"]) for one in projects],
    sys.stdout,
)
