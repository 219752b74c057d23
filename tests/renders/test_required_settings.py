"""Settings of an owner: kinds, required values, and the tests of a render with them."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.installed import clean_environment, environment, link_environment, rendered
from tests.stores import forks

pytestmark = pytest.mark.slow

OWN_CAPABILITIES = '''"""Needs ORDERS_URL."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from .harness import AgentError, Capability, CoreSettings, Runtime, Turn
from .harness import boolean, secret, string, string_list


@dataclass(frozen=True)
class OwnSettings(CoreSettings):
    orders_url: str = string("https://.+", "a URL", required=True)
    orders_dry_run: bool = boolean()
    orders_regions: tuple[str, ...] = string_list("[a-z]{2}", "a list like de,fr", ("de",))
    orders_pin: str = secret("[0-9]{4}", "four digits")


class Orders(Capability):
    settings: OwnSettings
    is_open = False

    async def open(self, runtime: Runtime) -> None:
        self.is_open = True

    @asynccontextmanager
    async def around(self, turn: Turn) -> AsyncIterator[None]:
        if not self.is_open:
            raise AgentError("internal_error", "Orders is not open.")
        yield


OWN_CAPABILITIES: list[type[Capability]] = [Orders]
'''
FIXTURES = 'ENVIRONMENT = {"ORDERS_URL": "https://orders.test"}\n'
OWN_TEST = """from client import open_client
from script import Reply

from my_agent.main import app


async def test_a_turn_with_own_capabilities() -> None:
    async with open_client(Reply("Fine.")) as client:
        assert (await client.say("Hello")).reply == "Fine."
        [orders] = client.runtime.capabilities[-1:]
        assert orders.is_open


def test_settings() -> None:
    settings, findings = app.read_settings()
    assert findings == []
    assert settings.orders_url == "https://orders.test"
    assert settings.orders_dry_run is False
    assert settings.orders_regions == ("de",)
"""


@pytest.fixture
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    project = tmp_path / "project"
    shutil.copytree(rendered(request.param), project)
    link_environment(project, environment(request.param.partition("+")[0]))
    (project / "src" / "my_agent" / "own_capabilities.py").write_text(OWN_CAPABILITIES, "utf-8")
    return project


@pytest.mark.parametrize(
    "project",
    [
        "strands-python+evals",
        pytest.param("vercel-python+evals", marks=pytest.mark.full),
        pytest.param("vercel-python+valkey", marks=pytest.mark.full),
        pytest.param("strands-python+agentcore", marks=pytest.mark.full),
    ],
    indirect=True,
)
def test_tests_of_the_harness_pass_without_a_required_setting(project: Path) -> None:
    run_tests(project, "tests/harness")


@pytest.mark.parametrize(
    "project",
    ["vercel-python", pytest.param("strands-python", marks=pytest.mark.full)],
    indirect=True,
)
def test_an_owner_tests_own_capabilities_with_an_environment_of_the_tests(project: Path) -> None:
    (project / "tests" / "own_fixtures.py").write_text(FIXTURES, "utf-8")
    (project / "tests" / "test_orders.py").write_text(OWN_TEST, "utf-8")
    run_tests(project, "tests/test_agent.py", "tests/test_orders.py")


def run_tests(project: Path, *paths: str) -> None:
    python = str(project / ".venv" / "bin" / "python")
    result = forks.run([python, "-m", "pytest", "-q", *paths], project, clean_environment())
    assert result.returncode == 0, result.stdout
    assert " passed" in result.stdout


@pytest.mark.parametrize(
    ("variables", "lines"),
    [
        ({}, ["ORDERS_URL is not set: use a URL."]),
        (
            {
                "ORDERS_URL": "http://a",
                "ORDERS_DRY_RUN": "maybe",
                "ORDERS_REGIONS": "de,germany",
                "ORDERS_PIN": "12345",
            },
            [
                "ORDERS_URL is 'http://a': use a URL.",
                "ORDERS_DRY_RUN is 'maybe': use true or false.",
                "ORDERS_REGIONS is 'de,germany': use a list like de,fr.",
                "ORDERS_PIN is invalid: use four digits.",
            ],
        ),
        (
            {
                "ORDERS_URL": "https://a",
                "ORDERS_DRY_RUN": "TRUE",
                "ORDERS_REGIONS": "de, fr",
                "ORDERS_PIN": "1234",
            },
            [],
        ),
    ],
    ids=["unset", "bad", "good"],
)
@pytest.mark.parametrize("project", ["strands-python"], indirect=True)
def test_check_reports_own_settings(
    project: Path, variables: dict[str, str], lines: list[str]
) -> None:
    code = "from my_agent.main import cli; cli()"
    command = [str(project / ".venv" / "bin" / "python"), "-c", code, "check"]
    own = {**clean_environment(), "PYTHONPATH": str(project / "src"), **variables}
    result = subprocess.run(command, cwd=project, env=own, capture_output=True, text=True)
    assert result.returncode == (1 if lines else 0), result.stdout
    assert "12345" not in result.stdout
    for line in lines:
        assert line in result.stdout
