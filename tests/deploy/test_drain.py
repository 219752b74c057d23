"""The longest shutdown of a process fits the time that the manifests give it, after any answers."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from hooks.rendering import render
from hooks.variants import EXTRAS, PROJECT_NAME, TARGETS
from tests.conftest import ROOT

EVERYTHING = {"long_term_memory": "agentcore-and-knowledge-base", "extras": [*EXTRAS]}
CALLS = 2  # to the session store, at the end of a turn that is cancelled


@pytest.mark.slow
@pytest.mark.parametrize(
    "answers",
    [
        pytest.param({}, id="plain", marks=pytest.mark.full),
        pytest.param(EVERYTHING, id="everything"),
    ],
)
@pytest.mark.parametrize("deploy", ["kubernetes", "container"])
@pytest.mark.parametrize("target", TARGETS)
def test_a_process_may_end_in_its_time(
    target: str, deploy: str, answers: dict[str, Any], tmp_path: Path
) -> None:
    given = {"project_name": PROJECT_NAME, "target": target, "session_store": "valkey"}
    render(ROOT, {**given, "deploy": deploy, **answers}, tmp_path)
    if deploy == "kubernetes":
        documents = yaml.safe_load_all((tmp_path / "deploy" / "kubernetes.yaml").read_text())
        (pod,) = [it["spec"]["template"]["spec"] for it in documents if it["kind"] == "Deployment"]
        (agent,) = pod["containers"]
        given_seconds = pod["terminationGracePeriodSeconds"]
        hook = agent["lifecycle"]["preStop"]["sleep"]["seconds"]
        settings = {it["name"]: it["value"] for it in agent["env"]}
    else:
        agent = yaml.safe_load((tmp_path / "compose.yaml").read_text())["services"]["agent"]
        given_seconds = int(agent["stop_grace_period"].removesuffix("s"))
        hook = 0
        settings = agent["environment"]
    turns = int(settings["SHUTDOWN_GRACE_SECONDS"])
    store = int(re.findall(r"`STORE_TIMEOUT_SECONDS` \| (\d+)", docs(tmp_path))[0])
    assert hook + turns + CALLS * store + sum(closing(tmp_path, turns)) < given_seconds


def docs(project: Path) -> str:
    return "".join(path.read_text() for path in sorted((project / "docs").glob("*.md")))


def closing(project: Path, grace: int) -> tuple[int, int]:
    """The time limits of `close` of the capabilities, and of those that close last, in seconds."""
    (runtime,) = (project / "src").glob("**/harness/runtime.*")
    text = runtime.read_text()
    (more,) = re.findall(r"shutdown_?[gG]race_?[sS]econds \+ (\d+)", text)
    (last,) = re.findall(r"(?m)^(?:const )?CLOSE_LAST_SECONDS = (\d+)", text)
    return grace + int(more), int(last)
