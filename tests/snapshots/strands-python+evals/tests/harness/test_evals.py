"""The cases of an eval pass, fail and are reported, each on its own."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from client import run

from my_agent.harness.evals import cases
from my_agent.harness.evals.statistics import (
    describe_change,
    fisher_p,
    interval,
)

SCHEMA = Path(__file__).parents[2] / "evals" / "schema.json"
CASES = """\
cases:
  - name: greets
    turns: [{prompt: Hello., offline: [Hi.], expect: {reply: {contains: [Hi.]}}}]
  - name: says-goodbye
    turns: [{prompt: Hello., offline: [Hi.], expect: {reply: {contains: [Bye.]}}}]
  - name: has-no-turns
"""


@pytest.fixture
def evaluate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Result]:
    """Return a function that evaluates CASES, which are in the file own.yaml."""
    shutil.copy(SCHEMA, tmp_path)
    (tmp_path / "own.yaml").write_text(CASES, "utf-8")
    monkeypatch.setattr(cases, "FOLDER", tmp_path)
    monkeypatch.setenv("MODEL", "")
    return lambda: run("eval", "--json", str(tmp_path / "results"))


def test_a_failed_case_is_explained(evaluate: Callable[[], Result]) -> None:
    result = evaluate()
    assert result.exit_code == 1
    assert 'the reply lacks "Bye."' in result.output
    assert "3 cases, 2 failed; 0 tokens." in result.output


def test_an_invalid_case_is_reported_with_its_line(
    evaluate: Callable[[], Result], tmp_path: Path
) -> None:
    result = evaluate()
    assert f"{tmp_path / 'own.yaml'}:6: 'turns' is a required property" in result.output


def test_the_other_cases_run(evaluate: Callable[[], Result], tmp_path: Path) -> None:
    evaluate()
    results = json.loads((tmp_path / "results").read_text("utf-8"))
    [run_of_greets] = results["cases"]["greets"]
    assert run_of_greets["turns"][0]["reply"] == "Hi."
    assert run_of_greets["failures"] == []


def test_a_share_has_a_confidence_interval() -> None:
    low, high = interval(7, 10)
    assert round(low, 2) == 0.4
    assert round(high, 2) == 0.89


def test_a_difference_has_a_p_value() -> None:
    assert round(fisher_p(7, 10, 10, 10), 2) == 0.21
    assert fisher_p(0, 10, 10, 10) < 0.001


def test_a_change_is_described_if_there_are_enough_runs() -> None:
    assert describe_change(0, 3, 3, 3) == "too few runs to compare"
    assert describe_change(1, 5, 5, 5) == "significantly worse (p = 0.048)"
