"""One contract: the same requests get the same bytes from every target."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conformance.provider import Provider
from tests.conformance.server import Fleet
from tests.conformance.targets import TARGETS, with_own_agent
from tests.conformance.transcript import APPROVALS, REQUESTS, Asked, transcript


@pytest.mark.slow
@pytest.mark.parametrize("requests", [REQUESTS, APPROVALS], ids=["plain", "approvals"])
def test_all_targets_have_the_same_transcript(
    requests: list[Asked], provider: Provider, tmp_path: Path
) -> None:
    transcripts = {}
    for target in TARGETS:
        own = with_own_agent(target, approval=True) if requests is APPROVALS else target
        # As an owner starts it.
        alone = replace(own, start=subprocess.Popen)
        fleet = Fleet(alone, tmp_path / target.name, provider.origin)
        (tmp_path / target.name).mkdir()
        try:
            transcripts[target.name] = transcript(fleet.fresh(offline=True), requests)
        finally:
            fleet.stop()
    first, *others = transcripts
    for other in others:
        assert transcripts[other] == transcripts[first], f"{other} differs from {first}"
