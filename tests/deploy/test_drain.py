"""The longest shutdown of a process fits the time that each supervisor gives it.

The steps follow each other: the preStop hook, the grace period of the turns, the store calls of a
turn that commits meanwhile, `ended`, `close`, and the last second of clients. Slower than this are
only a store that answers each of many calls just before its limit, and code of the owner.
"""

import re
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

from hooks.rendering import render
from hooks.variants import EXTRAS, PROJECT_NAME, STORES, TARGETS
from tests.conftest import ROOT

EVERYTHING = {"long_term_memory": "agentcore-and-knowledge-base", "extras": [*EXTRAS]}
# A store that stops answering: the save of a turn, and the load that asks whether it was saved.
CALLS = 2
RESERVE = 5  # seconds, for a busy machine
# A call to an endpoint takes longest.
ROWS = [
    pytest.param(
        *(store, answers),
        id=f"{name}-{store}",
        marks=[] if (store, name) == ("custom", "everything") else [pytest.mark.full],
    )
    for store, (name, answers) in product(STORES, {"plain": {}, "everything": EVERYTHING}.items())
]


@pytest.mark.slow
@pytest.mark.parametrize(("store", "answers"), ROWS)
@pytest.mark.parametrize("deploy", ["kubernetes", "container"])
@pytest.mark.parametrize("target", TARGETS)
def test_a_process_may_end_in_its_time(
    target: str, deploy: str, store: str, answers: dict[str, Any], tmp_path: Path
) -> None:
    given = {"project_name": PROJECT_NAME, "target": target, "session_store": store}
    render(ROOT, {**given, "deploy": deploy, **answers}, tmp_path)
    texts = {path.stem: path.read_text() for path in (tmp_path / "docs").glob("*.md")}
    default = number(r"`SHUTDOWN_GRACE_SECONDS` \| (\d+)", texts["settings"])
    unit = texts["http"].partition("    [Service]\n")[2].partition("\n\n")[0]
    # Otherwise systemd also ends the MCP servers, which running turns need.
    assert "    KillMode=mixed\n" in unit
    limits = [(number(r"TimeoutStopSec=(\d+)", unit), 0, default)]
    if deploy == "kubernetes":
        limits.append(limit_of_pod(tmp_path / "deploy" / "kubernetes.yaml"))
    else:
        limits.append((number(r"docker stop -t (\d+)", texts["containers"]), 0, default))
        agent = yaml.safe_load((tmp_path / "compose.yaml").read_text())["services"]["agent"]
        seconds = int(agent["stop_grace_period"].removesuffix("s"))
        limits.append((seconds, 0, int(agent["environment"]["SHUTDOWN_GRACE_SECONDS"])))
    for limit, hook, grace in limits:
        saving = CALLS * store_seconds(tmp_path, store, texts)
        steps = [hook, grace, saving, *ending_seconds(tmp_path, grace)]
        assert sum(steps) + RESERVE <= limit, steps


def limit_of_pod(file: Path) -> tuple[int, int, int]:
    """The seconds that a pod has, those of its hook, and those of its turns."""
    documents = yaml.safe_load_all(file.read_text())
    (pod,) = [it["spec"]["template"]["spec"] for it in documents if it["kind"] == "Deployment"]
    (agent,) = pod["containers"]
    settings = {it["name"]: it["value"] for it in agent["env"]}
    hook = agent["lifecycle"]["preStop"]["sleep"]["seconds"]
    return pod["terminationGracePeriodSeconds"], hook, int(settings["SHUTDOWN_GRACE_SECONDS"])


def store_seconds(project: Path, store: str, texts: dict[str, str]) -> float:
    """The time limit of a call to the session store."""
    if store != "custom":
        return number(r"`STORE_TIMEOUT_SECONDS` \| (\d+)", texts["session-store"])
    declared = (project / "collections" / "sessions.collection.md").read_text().split("---\n")[1]
    transport = yaml.safe_load(declared)["backend"]["transport"]
    return float(transport["retry_policy"]["max_attempts"] * transport["timeout_ms"] / 1000)


def ending_seconds(project: Path, grace: int) -> list[int]:
    """The time limits of what follows the turns, in order."""
    (harness,) = (project / "src").glob("**/harness")
    (runtime,) = harness.glob("runtime.*")
    text = runtime.read_text()
    ended = number(r"(?m)^(?:const )?ENDED_SECONDS = (\d+)", text)
    more = number(r"shutdown_?[gG]race_?[sS]econds \+ (\d+)", text)
    last = number(r"(?m)^(?:const )?CLOSE_LAST_SECONDS = (\d+)", text)
    (serve,) = (harness / "http").glob("serve.*")
    clients = number(r"(\d+)\D*for clients that do not read", serve.read_text())
    if serve.suffix == ".ts":
        clients //= 1000
    return [*[ended] * waiting_ends(harness), grace + more, last, clients]


def waiting_ends(harness: Path) -> int:
    """How many capabilities wait for something at the end of a turn, one after the other."""
    sources = [it.read_text() for it in harness.glob("*/capability.*")]
    found = [re.findall(r"async (?:def )?ended\((?:.+\n)+", text) for text in sources]
    return sum("await " in method for methods in found for method in methods)


def number(pattern: str, text: str) -> int:
    (found,) = re.findall(pattern, text)
    return int(found)
