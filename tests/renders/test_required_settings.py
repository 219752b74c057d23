"""A capability whose setting is required fails no test that the template brings."""

import shutil
from pathlib import Path

import pytest

from tests.installed import clean_environment, environment, link_environment, rendered
from tests.stores import forks

pytestmark = pytest.mark.slow

OWN_CAPABILITIES = '''"""Needs ORDERS_URL."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from .capability import Capability
from .contract import AgentError, Turn
from .findings import Finding, diagnostic
from .settings import CoreSettings, string


@dataclass(frozen=True)
class OwnSettings(CoreSettings):
    orders_url: str = string("https://.+", "a URL")


class Orders(Capability):
    settings: OwnSettings

    def check(self) -> list[Finding]:
        return [] if self.settings.orders_url else [diagnostic("ORDERS", "Set ORDERS_URL.")]

    @asynccontextmanager
    async def around(self, turn: Turn) -> AsyncIterator[None]:
        if not self.settings.orders_url:
            raise AgentError("internal_error", "ORDERS_URL is not set.")
        yield


OWN_CAPABILITIES: list[type[Capability]] = [Orders]
'''


@pytest.mark.parametrize(
    "variant",
    [
        "strands-python+evals",
        pytest.param("vercel-python+evals", marks=pytest.mark.full),
        pytest.param("vercel-python+valkey", marks=pytest.mark.full),
        pytest.param("strands-python+agentcore", marks=pytest.mark.full),
    ],
)
def test_tests_of_a_render_pass_without_a_required_setting(variant: str, tmp_path: Path) -> None:
    project = tmp_path / "project"
    shutil.copytree(rendered(variant), project)
    link_environment(project, environment(variant.partition("+")[0]))
    (project / "src" / "my_agent" / "own_capabilities.py").write_text(OWN_CAPABILITIES, "utf-8")
    python = str(project / ".venv" / "bin" / "python")
    # test_agent.py is the owner's, who sets ORDERS_URL there.
    command = [python, "-m", "pytest", "-q", "--ignore=tests/test_agent.py"]
    result = forks.run(command, project, clean_environment())
    assert result.returncode == 0, result.stdout
    assert " passed" in result.stdout
