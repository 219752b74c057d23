"""The table of answers is whole, and README publishes it."""

import json
import subprocess
import sys
from typing import get_args

import pytest
from _pytest.mark import ParameterSet

from hooks.variants import TARGETS, VARIANTS, language_of
from tests import matrix
from tests.conftest import ROOT
from tests.installed import this_template
from tests.matrix import ALONE, CROWDED, PAIRS, Job, When, params


def test_readme_has_the_table() -> None:
    assert f"\n{matrix.summary()}\n" in (ROOT / "README.md").read_text("utf-8")


def test_each_answer_has_a_row() -> None:
    template = this_template()
    for question in template.asked:
        choices = {value for value, _ in template.choices(question, {})}
        answers = [
            row.answers.get(question, template.questions[question]["default"]) for row in ALONE
        ]
        given = {value for it in answers for value in (it if isinstance(it, list) else [it])}
        assert choices <= given | {"openai"}, f"{question}: the plain AI SDK renders have openai"


@pytest.mark.parametrize("names", [matrix.TYPED, matrix.TESTED, matrix.USED, matrix.SWITCHED])
def test_the_rows_of_every_run_are_renders(names: set[str]) -> None:
    assert names <= VARIANTS.keys()


def test_names_of_crowded_rows_are_renders() -> None:
    assert matrix.MANY.keys() >= matrix.USUAL_MANY
    assert {row.name for row in CROWDED} >= matrix.NEWEST


@pytest.mark.parametrize("job", ["rendered", "linted", "typed", "used", "tested"])
def test_every_run_does_each_job_in_both_languages(job: Job) -> None:
    usual = [row for row in ALONE if getattr(row, job) is When.EVERY_RUN]
    assert {language_of(row.name) for row in usual} == {"python", "typescript"}


@pytest.mark.slow
def test_the_table_equals_the_suite() -> None:
    folders = ["tests/renders", "tests/template", "tests/updates"]
    command = [sys.executable, "-m", "tests.support.jobs", *folders]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    said = {
        job: {
            row.name: getattr(row, job)
            for row in (*ALONE, *CROWDED, *PAIRS)
            if getattr(row, job) is not When.NEVER
        }
        for job in get_args(Job)
    }
    assert json.loads(done.stdout) == said


@pytest.mark.parametrize(("variants", "rows"), [(1, 1), (1, 5), (5, 1), (16, 3), (16, 35), (7, 7)])
def test_each_variant_has_a_share_of_the_rows_and_no_row_is_lost(variants: int, rows: int) -> None:
    pairs = [
        (variant, row)
        for variant in range(variants)
        for row in range(rows)
        if matrix.in_turn(variant, row, variants=variants, rows=rows)
    ]
    assert {variant for variant, _ in pairs} == {*range(variants)}
    assert {row for _, row in pairs} == {*range(rows)}
    assert len(pairs) == max(variants, rows)


def test_each_option_stays_in_each_language_and_in_turn_in_each_framework() -> None:
    kept = matrix.one_framework("a test", VARIANTS)
    assert kept >= {*TARGETS}
    options = {(language_of(it), it.partition("+")[2]) for it in VARIANTS}
    assert options == {(language_of(it), it.partition("+")[2]) for it in kept}
    assert len(kept) < 0.7 * len(VARIANTS)
    assert {it.partition("-")[0] for it in kept if "+valkey" in it} == {*matrix.FRAMEWORKS}
    tests = [matrix.one_framework(f"test {number}", VARIANTS) for number in range(20)]
    assert set[str]().union(*tests) == {*VARIANTS}
    assert matrix.one_framework("a test", ["vercel-python+s3"]) == {"vercel-python+s3"}


def marks(rows: list[ParameterSet]) -> list[list[str]]:
    return [[mark.name for mark in row.marks] for row in rows]


def test_a_row_is_in_every_run_or_weekly_or_in_none() -> None:
    typed = params(ALONE, "typed")
    assert [row.id for row in typed] == [row.name for row in ALONE]
    assert marks(typed).count([]) == len(matrix.TYPED)
    assert marks(params(PAIRS, "linted")) == [["full"]] * len(PAIRS)
    assert params(PAIRS, "tested") == []
