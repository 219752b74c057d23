"""A render's own tests find seeded faults, and nothing where there is none."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from tests.conftest import Rendered
from tests.mutation.fault import Fault
from tests.mutation.runner import run
from tests.mutation.targets import TARGETS


def rows() -> Iterator[ParameterSet]:
    """Each fault of each target.

    Shared modules have shared tests: what is seeded there is tried in one target of each language.
    """
    for name, target in TARGETS.items():
        for fault in target.faults if name.startswith("strands-") else target.own:
            yield pytest.param(name, fault, id=f"{name}: {fault.name}")


@pytest.mark.slow
@pytest.mark.full
@pytest.mark.parametrize(("target", "fault"), list(rows()))
def test_a_fault_is_found(target: str, fault: Fault) -> None:
    outcome = run(TARGETS[target], fault)
    assert outcome.verdict == "failed", outcome.output


@pytest.mark.slow
@pytest.mark.full
@pytest.mark.parametrize("target", ["strands-python", "strands-typescript"])
def test_the_tests_pass_where_there_is_no_fault(target: str) -> None:
    outcome = run(TARGETS[target])
    assert outcome.verdict == "passed", outcome.output


@pytest.mark.slow
@pytest.mark.full
def test_the_module_that_runs_is_the_one_in_the_copy() -> None:
    # Not even the package can be imported: were it another one, its tests would pass.
    gone = Fault("the package is gone", "src/my_agent/__init__.py", '"""An', 'raise OSError("""An')
    assert run(TARGETS["strands-python"], gone).verdict == "broken"


@pytest.mark.parametrize("target", TARGETS)
def test_there_are_faults_enough_and_each_is_another(target: str) -> None:
    faults = TARGETS[target].faults
    least = {"approval": 20, "compaction": 12}.get(target.rpartition("+")[2], 45)
    assert len(faults) >= least
    assert [fault for fault in faults if fault.old == fault.new] == []
    for field in ("name", None):
        keys = Counter(fault.name if field else fault[1:] for fault in faults)
        assert [key for key, count in keys.items() if count > 1] == []


@pytest.mark.parametrize("target", TARGETS)
def test_each_fault_fits_its_render(target: str, rendered: Rendered) -> None:
    project = rendered(TARGETS[target].variant)
    for fault in TARGETS[target].faults:
        fault.applied(project)


@pytest.mark.parametrize("text", ["", "old old"])
def test_a_fault_that_does_not_fit_exactly_once_is_an_error(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(text)
    with pytest.raises(ValueError, match="not once"):
        Fault("a fault", "a.py", "old", "new").apply(tmp_path)
