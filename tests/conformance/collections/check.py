"""Checks the projects that stdin lists, in one process of a render: {"found", "seconds"} for each.

Each is {folder, agent_id, variables}. Without variables nothing is said about them. The seconds are
CPU time.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from my_agent.harness.collections.check import check_project  # type: ignore[import-not-found]

OF_VARIABLES = ("AML-W240", "AML-W242")


def check(one: dict[str, Any]) -> dict[str, Any]:
    """The findings in one project, and the CPU time of its check."""
    variables, folder = one.get("variables"), Path(one["folder"])
    os.environ.clear()
    os.environ.update(variables or {}, HOME=str(folder))
    start = time.process_time()
    found = check_project(folder, one.get("agent_id"))
    seconds = time.process_time() - start
    if variables is None:
        found = [each for each in found if each["id"] not in OF_VARIABLES]
    return {"found": found, "seconds": seconds}


json.dump([check(one) for one in json.load(sys.stdin)], sys.stdout)
