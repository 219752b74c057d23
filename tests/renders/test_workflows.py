"""The workflows of a render, which an owner extends by files of his own."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from hooks.variants import TARGETS
from tests.installed import rendered
from tests.updates.commands import bash

OWN = "# For CI, without secrets\n\nORDERS_URL=http://orders.test?a=b c\nSTAFF=carol,dave\n"
READ = ["ORDERS_URL=http://orders.test?a=b c", "STAFF=carol,dave"]


def jobs_of(target: str) -> list[list[dict[str, Any]]]:
    """The steps of each job that runs the project's own commands."""
    project = rendered(target, extras="[evals]")
    paths = sorted((project / ".github" / "workflows").glob("*.yml"))
    assert [path.name for path in paths] == ["ci.yml", "evals.yml"]
    workflows = [yaml.safe_load(path.read_text("utf-8")) for path in paths]
    return [job["steps"] for workflow in workflows for job in workflow["jobs"].values()]


@pytest.mark.full
@pytest.mark.parametrize("target", TARGETS)
def test_each_job_has_the_variables_of_the_owner(target: str, tmp_path: Path) -> None:
    jobs = jobs_of(target)
    assert len(jobs) == 3
    for number, steps in enumerate(jobs):
        scripts = [step["run"] for step in steps if "run" in step]
        (script,) = [script for script in scripts if "GITHUB_ENV" in script]
        earlier = scripts[: scripts.index(script)]
        assert not any("sync" in it or "npm" in it for it in earlier)
        folder = tmp_path / str(number)
        variables = {"GITHUB_ENV": str(folder / "variables")}
        checkouts = {step.get("with", {}).get("path", ".") for step in steps if "uses" in step}
        owned = folder / ("head" if "head" in checkouts else ".") / ".github"
        owned.mkdir(parents=True)
        assert bash(script, folder, **variables).returncode == 0
        assert not (folder / "variables").exists()
        (owned / "own.env").write_text("# None yet\n")
        assert bash(script, folder, **variables).returncode == 0
        (owned / "own.env").write_text(OWN)
        assert bash(script, folder, **variables).returncode == 0
        assert (folder / "variables").read_text().splitlines() == READ
