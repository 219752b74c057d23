"""A failed or invalid case does not stop other cases; statistics are right."""

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
    """Return a function that runs `eval` with CASES in the file own.yaml."""
    shutil.copy(SCHEMA, tmp_path)
    (tmp_path / "own.yaml").write_text(CASES, "utf-8")
    monkeypatch.setattr(cases, "FOLDER", tmp_path)
    monkeypatch.setenv("MODEL", "")
    return lambda: run("eval", "--json", str(tmp_path / "results"))


def test_output_explains_a_failed_case(evaluate: Callable[[], Result]) -> None:
    result = evaluate()
    assert result.exit_code == 1
    assert 'the reply lacks "Bye."' in result.output
    assert "3 cases, 2 failed; 0 tokens." in result.output


def test_output_names_the_line_of_an_invalid_case(
    evaluate: Callable[[], Result], tmp_path: Path
) -> None:
    result = evaluate()
    assert f"{tmp_path / 'own.yaml'}:6: 'turns' is a required property" in result.output


def test_valid_cases_run_beside_an_invalid_case(
    evaluate: Callable[[], Result], tmp_path: Path
) -> None:
    evaluate()
    results = json.loads((tmp_path / "results").read_text("utf-8"))
    [run_of_greets] = results["cases"]["greets"]
    assert run_of_greets["turns"][0]["reply"] == "Hi."
    assert run_of_greets["failures"] == []


def test_pass_rate_has_a_wilson_interval() -> None:
    low, high = interval(7, 10)
    assert round(low, 2) == 0.4
    assert round(high, 2) == 0.89


def test_fisher_p_of_two_pass_rates() -> None:
    assert round(fisher_p(7, 10, 10, 10), 2) == 0.21
    assert fisher_p(0, 10, 10, 10) < 0.001


def test_change_is_described_only_with_enough_runs() -> None:
    assert describe_change(0, 3, 3, 3) == "too few runs to compare"
    assert describe_change(1, 5, 5, 5) == "significantly worse (p = 0.048)"
