"""A render works with the lowest versions that its manifest allows, as with the highest."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.installed import (
    NPM,
    clean_environment,
    link_packages,
    packages,
    python_for,
    rendered,
    uv,
)
from tests.matrix import FRAMEWORKS, LANGUAGES, one_framework

pytestmark = [pytest.mark.slow, pytest.mark.full]
# Other variants of a language add no package to these, or one of a vendor, which no test calls.
STORES = ("+valkey+agentcore+knowledge-base", "+s3", "+custom")
OPTIONS = (
    "",
    *STORES,
    "+mcp",
    "+tracing",
    "+auth",
    "+approval",
    "+compaction",
    "+fallback",
    "+evals",
)
# The packages of an option are the same for both frameworks, whose own every row has.
PYTHON, TYPESCRIPT = (
    sorted(
        one_framework(
            "lowest",
            [f"{framework}-{language}{it}" for framework in FRAMEWORKS for it in OPTIONS],
        )
    )
    for language in LANGUAGES
)
RANGE = re.compile(r"[\^~]?(\d+)(?:\.(\d+))?(?:\.(\d+))?")


def lowest(manifest: str) -> str:
    """A package.json that allows only the lowest version of each range: npm cannot be asked to."""
    data = json.loads(manifest)
    for group in ("dependencies", "optionalDependencies", "devDependencies"):
        for name, wanted in data.get(group, {}).items():
            match = RANGE.fullmatch(wanted)
            assert match, f"{name} {wanted}"
            data[group][name] = ".".join(part or "0" for part in match.groups())
    return json.dumps(data)


def run(project: Path, *command: str, **variables: str) -> None:
    environment = {**clean_environment(), **variables}
    result = subprocess.run(
        command, cwd=project, env=environment, capture_output=True, text=True, timeout=500
    )
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("variant", PYTHON)
def test_python_passes_its_tests_and_mypy_with_the_lowest_versions(
    variant: str, tmp_path: Path
) -> None:
    project = Path(shutil.copytree(rendered(variant), tmp_path / "project"))
    python = str(project / ".venv" / "bin" / "python")
    sync = [*uv(), "sync", "-q", "--resolution", "lowest-direct", "--python", python_for(project)]
    run(project, *sync)
    block = {"PYTHONPATH": str(ROOT / "tests" / "support")}
    run(project, python, "-m", "pytest", "-q", "-p", "no_network", **block)
    run(project, python, "-m", "mypy")


@pytest.mark.parametrize("variant", TYPESCRIPT)
def test_typescript_passes_its_tests_and_tsc_with_the_lowest_versions(
    variant: str, tmp_path: Path
) -> None:
    project = Path(shutil.copytree(rendered(variant), tmp_path / "project"))
    link_packages(project, packages(lowest((project / "package.json").read_text()).encode()))
    run(
        project,
        *NPM,
        "test",
        NODE_OPTIONS=f"--import={(ROOT / 'tests/support/no_network.mjs').as_uri()}",
    )
    run(project, *NPM, "exec", "tsc")
