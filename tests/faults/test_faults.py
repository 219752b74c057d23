"""A render's own tests find every seeded fault, and nothing where there is none."""

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from tests.faults.fault import Fault
from tests.faults.runner import run
from tests.faults.targets import TARGETS

AT_ONCE = 4
# Shared modules have shared tests: what is seeded there is tried in one target of each language.
# A fault of one name is tried in one of the targets that have it, and in the soak in the others.
SOWN = [
    (name, fault)
    for name, target in TARGETS.items()
    for fault in (target.faults if name.startswith("strands-") else target.own)
]


def is_soak(target: str, fault: Fault) -> bool:
    having = [name for name, other in SOWN if other.name == fault.name]
    return target != having[len(fault.name) % len(having)]


def batches() -> Iterator[ParameterSet]:
    """A few faults of a target at a time: their tests wait for most of theirs."""
    for is_left in (False, True):
        for name in TARGETS:
            faults = [one for of, one in SOWN if of == name and is_soak(name, one) == is_left]
            marks = [pytest.mark.soak] if is_left else []
            for number in range(0, len(faults), AT_ONCE):
                some = faults[number : number + AT_ONCE]
                yield pytest.param(name, some, id=f"{name}: {some[0].name}", marks=marks)


@pytest.mark.slow
@pytest.mark.parametrize(("target", "faults"), list(batches()))
def test_faults_are_found(target: str, faults: list[Fault]) -> None:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        outcomes = list(pool.map(partial(run, TARGETS[target]), faults))
    missed = {
        fault.name: outcome.output
        for fault, outcome in zip(faults, outcomes, strict=True)
        if outcome.verdict != "failed"
    }
    assert missed == {}


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_the_tests_pass_where_there_is_no_fault(target: str) -> None:
    outcome = run(TARGETS[target])
    assert outcome.verdict == "passed", outcome.output


@pytest.mark.slow
def test_the_module_that_runs_is_the_one_in_the_copy() -> None:
    # Not even the package can be imported: were it another one, its tests would pass.
    gone = Fault("the package is gone", "src/app/__init__.py", '"""An', 'raise OSError("""An')
    assert run(TARGETS["strands-python"], gone).verdict == "broken"


@pytest.mark.parametrize("target", TARGETS)
def test_there_are_faults_enough_and_each_is_another(target: str) -> None:
    faults = TARGETS[target].faults
    assert len(faults) >= 45
    assert [fault for fault in faults if fault.old == fault.new] == []
    for field in ("name", None):
        keys = Counter(fault.name if field else fault[1:] for fault in faults)
        assert [key for key, count in keys.items() if count > 1] == []


@pytest.mark.parametrize("text", ["", "old old"])
def test_a_fault_that_does_not_fit_exactly_once_is_an_error(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(text)
    with pytest.raises(ValueError, match="not once"):
        Fault("a fault", "a.py", "old", "new").apply(tmp_path)
