"""The fixture of AgentCore Memory: a server for one test, whose contract nobody may have broken."""

from collections.abc import Iterator

import pytest

from tests.agentcore.server import AgentCore


@pytest.fixture
def agentcore() -> Iterator[AgentCore]:
    with AgentCore() as server:
        yield server
    assert server.violations == []
