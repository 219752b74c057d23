"""A render's own tests find every seeded fault, and nothing where there is none."""

from collections import Counter
from pathlib import Path

import pytest

from tests.faults.fault import Fault
from tests.faults.runner import run
from tests.faults.targets import TARGETS

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


SEEDED = [
    pytest.param(
        name,
        fault,
        id=f"{name}: {fault.name}",
        marks=[pytest.mark.soak] if is_soak(name, fault) else [],
    )
    for name, fault in SOWN
]


@pytest.mark.slow
@pytest.mark.parametrize(("target", "fault"), SEEDED)
def test_a_fault_is_found(target: str, fault: Fault) -> None:
    outcome = run(TARGETS[target], fault)
    assert outcome.verdict == "failed", outcome.output


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
