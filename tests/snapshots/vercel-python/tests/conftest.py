"""Settings of all tests: asyncio, without .env, models and secrets."""

import os
from unittest.mock import patch

import pytest
from own_fixtures import *
from own_fixtures import ENVIRONMENT

from my_agent.harness import settings

UNSET = ("AGENT_ID", "MODEL", "SECRET", "SESSION")

patch.object(settings, "read_env_file", list).start()
for name in os.environ:
    if name.startswith(UNSET):
        os.environ[name] = ""
os.environ.update(ENVIRONMENT)


@pytest.fixture
def anyio_backend() -> str:
    """Run async tests with asyncio."""
    return "asyncio"
