"""One contract: the same requests get the same bytes from every target."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conformance.provider import Provider
from tests.conformance.server import Fleet
from tests.conformance.targets import TARGETS
from tests.conformance.transcript import transcript


@pytest.mark.slow
def test_all_targets_have_the_same_transcript(provider: Provider, tmp_path: Path) -> None:
    transcripts = {}
    for target in TARGETS:
        # As an owner starts it.
        alone = replace(target, start=subprocess.Popen)
        fleet = Fleet(alone, tmp_path / target.name, provider.origin)
        (tmp_path / target.name).mkdir()
        try:
            transcripts[target.name] = transcript(fleet.fresh(offline=True))
        finally:
            fleet.stop()
    first, *others = transcripts
    for other in others:
        assert transcripts[other] == transcripts[first], f"{other} differs from {first}"
