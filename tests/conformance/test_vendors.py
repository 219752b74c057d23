"""The same failures and turns, with the client of every other vendor that a render can have."""

from typing import cast

import pytest

from tests.conformance.targets import VENDOR_TARGETS, Target
from tests.conformance.test_failures import *  # noqa: F403
from tests.conformance.test_turns import *  # noqa: F403

pytestmark = pytest.mark.slow


@pytest.fixture(scope="session", params=VENDOR_TARGETS, ids=lambda target: target.name)
def target(request: pytest.FixtureRequest) -> Target:
    return cast(Target, request.param)
