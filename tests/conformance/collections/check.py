"""Checks the projects that stdin lists, in one process of a render: their findings.

Each is {folder, agent_id, variables}. Without variables nothing is said about them.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

from my_agent.harness.collections.check import check_project  # type: ignore[import-not-found]

OF_VARIABLES = ("AML-W240", "AML-W242")


def check(one: dict[str, Any]) -> list[dict[str, Any]]:
    """The findings in one project."""
    variables, folder = one.get("variables"), Path(one["folder"])
    os.environ.clear()
    os.environ.update(variables or {}, HOME=str(folder))
    found = check_project(folder, one.get("agent_id"))
    return [each for each in found if variables is not None or each["id"] not in OF_VARIABLES]


json.dump([check(one) for one in json.load(sys.stdin)], sys.stdout)
