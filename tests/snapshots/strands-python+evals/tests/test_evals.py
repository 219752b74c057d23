"""Cases pass, fail and are reported, each on its own."""

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from app.evals import cases
from app.evals.statistics import describe_change, fisher_p, interval
from app.main import cli

CASES = """\
cases:
  - name: greets
    turns: [{prompt: Hello., offline: [Hi.], expect: {reply: {contains: [Hi.]}}}]
  - name: says-goodbye
    turns: [{prompt: Hello., offline: [Hi.], expect: {reply: {contains: [Bye.]}}}]
  - name: has-no-turns
"""


def test_a_case_that_fails_or_is_wrong_leaves_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(Path(__file__).parents[1] / "evals" / "schema.json", tmp_path)
    (tmp_path / "own.yaml").write_text(CASES, "utf-8")
    monkeypatch.setattr(cases, "FOLDER", tmp_path)
    monkeypatch.setenv("MODEL", "")
    result = CliRunner().invoke(cli, ["eval", "--json", str(tmp_path / "results")])
    assert result.exit_code == 1
    assert 'the reply lacks "Bye."' in result.output
    assert f"{tmp_path / 'own.yaml'}:6: 'turns' is a required property" in result.output
    assert "3 cases, 2 failed; 0 tokens." in result.output
    (run,) = json.loads((tmp_path / "results").read_text("utf-8"))["cases"]["greets"]
    assert run["turns"][0]["reply"] == "Hi."
    assert run["failures"] == []


def test_a_share_has_an_interval_and_a_difference_a_p_value() -> None:
    assert [round(end, 2) for end in interval(7, 10)] == [0.4, 0.89]
    assert round(fisher_p(7, 10, 10, 10), 2) == 0.21
    assert fisher_p(0, 10, 10, 10) < 0.001
    assert describe_change(0, 3, 3, 3) == "too few runs to compare"
    assert describe_change(1, 5, 5, 5) == "significantly worse (p = 0.048)"
