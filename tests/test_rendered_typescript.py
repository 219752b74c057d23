"""The quality of what is rendered in TypeScript: clean under strict tools, tested offline."""

import json
import re
import subprocess
import time
from pathlib import Path

import pytest

from hooks.variants import VARIANTS
from tests.conftest import ROOT
from tests.installed import NODE, NPM, clean_environment, installed, packages
from tests.test_rendered import with_tests

# What the tests need besides a render: knip, and the oldest Node that a render takes.
TOOLS = b'{"dependencies": {"knip": "^5.88", "node": "~22.18"}, "allowScripts": {"node": true}}'
# Of two options the second brings declarations and documents only.
NAMES = [name for name in VARIANTS if name.count("+") < 2]
TYPESCRIPT = [name for name in NAMES if name.partition("+")[0].endswith("-typescript")]
# How long the tests of a render may take.
SECONDS, SECONDS_WITH_STORE = 20, 40  # other tests run beside them
OFFLINE = {"NODE_OPTIONS": f"--import={(ROOT / 'tests' / 'no_network.mjs').as_uri()}"}

pytestmark = pytest.mark.slow
every = pytest.mark.parametrize("variant", TYPESCRIPT)


def run(project: Path, *command: str, **environment: str) -> str:
    result = subprocess.run(
        command,
        cwd=project,
        env={**clean_environment(), **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert result.returncode == 0, f"{' '.join(command)}:\n{result.stdout}"
    return result.stdout


@every
def test_a_render_is_clean_for_its_own_linters_and_types(variant: str) -> None:
    run(installed(variant), *NPM, "run", "lint")


@pytest.mark.parametrize("variant", with_tests(TYPESCRIPT))
def test_a_render_passes_its_own_tests_offline_in_time(variant: str) -> None:
    most = SECONDS_WITH_STORE if "valkey" in variant else SECONDS
    for _ in range(2):  # other tests run beside this one, so it gets another try
        start = time.monotonic()
        assert re.search(r"pass \d+", run(installed(variant), *NPM, "test", **OFFLINE))
        if (seconds := time.monotonic() - start) < most:
            return
    pytest.fail(f"its own tests take {seconds:.0f} s, {most} are allowed")


@pytest.mark.parametrize("variant", [name for name in TYPESCRIPT if "+" not in name])
def test_a_render_passes_its_own_tests_on_the_oldest_node_that_it_takes(variant: str) -> None:
    node = packages(TOOLS) / "node" / "bin" / "node"
    assert run(installed(variant), str(node), "--version").startswith("v22.18.")
    run(installed(variant), str(node), "--test", **OFFLINE)


@every
def test_a_render_has_no_dependency_file_or_export_that_it_does_not_use(variant: str) -> None:
    run(installed(variant), str(NODE), str(packages(TOOLS) / "knip" / "bin" / "knip.js"))


@every
def test_no_package_of_a_render_runs_a_script_when_it_is_installed(variant: str) -> None:
    lock = (installed(variant) / "node_modules").resolve().parent / "package-lock.json"
    found = json.loads(lock.read_text())["packages"]
    assert [name for name, package in found.items() if package.get("hasInstallScript")] == []


def test_the_module_that_blocks_the_network_blocks_it() -> None:
    code = "fetch('http://192.0.2.1').catch((error) => console.log(String(error.cause)))"
    assert "offline" in run(ROOT, str(NODE), "-e", code, **OFFLINE)
