"""The table of answers: which combination is rendered, linted, type checked and tested, and when.

`hooks.variants` names the renders of ALONE, because a tag of the template has no tests. Each test
takes its rows from here and is marked `job(…)`, so that a test compares the table with the suite;
README publishes `summary()`.
"""

import itertools
import random
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

import pytest
from _pytest.mark import ParameterSet

from hooks.variants import (
    EXTRAS,
    MODELS,
    PROJECT_NAME,
    STORES,
    TARGETS,
    VARIANTS,
    answers_of,
    base_of,
    language_of,
)


class When(StrEnum):
    """The runs that do a job."""

    EVERY_RUN = "every run"  # pytest
    WEEKLY = "weekly"  # pytest -m full
    NEVER = "never"


FRAMEWORKS = ("strands", "vercel")
Job = Literal["rendered", "linted", "typed", "used", "tested", "switched"]


@dataclass(frozen=True)
class Row:
    """A combination of answers, and when each job is done with its render."""

    name: str
    answers: dict[str, Any]
    rendered: When
    linted: When
    typed: When  # checked for types
    used: When  # checked for dependencies, files and exports that nothing uses
    tested: When  # passes its own tests
    switched: When  # an update adds the answer to a project, and another takes it away


# Every run also checks the types of crowded renders, which have almost all code, and of plain ones
# (tests/renders/test_first_hour.py). The lists of modules are shorter here. In TypeScript one
# command lints and checks types.
TYPED = {"strands-python+s3", "strands-typescript+s3"}
# Each language and each framework once. A store and a memory are the same in all targets of a
# language, no test is about a model, and each render has the tests of a plain render.
TESTED = {"vercel-python+custom", "strands-typescript+valkey+agentcore"}
# In Python all options are in these renders, and the plain renders lack them. The command of
# TypeScript takes longer: the usual run has one framework.
USED = {
    "strands-python",
    "strands-python+s3",
    "strands-python+valkey+agentcore",
    "vercel-python",
    "vercel-python+custom",
    "vercel-python+ui",
    "vercel-python+valkey",
    "vercel-typescript",
    "vercel-typescript+ui",
}
SWITCHED = set[str]()  # weekly: each takes a minute


def in_run(is_usual: bool) -> When:
    """Return the run of a row: every run, or the weekly run."""
    return When.EVERY_RUN if is_usual else When.WEEKLY


def capability_of(variant: str) -> str:
    """Return the question whose answer makes `variant` of its base; "" where that is a vendor."""
    base = base_of(variant)
    if base is None or "model" in VARIANTS[variant]:
        return ""
    return "".join(VARIANTS[variant].keys() - VARIANTS[base].keys())


def one_framework(test: str, variants: Collection[str]) -> set[str]:
    """Return the variants with each option once for each language: in one of the frameworks.

    For tests of code that the frameworks share. The test and the option say which framework it is.
    Plain renders, and options of one framework only, all stay.
    """
    kept = set[str]()
    for variant in variants:
        framework, _, option = variant.partition("-")
        pair = [f"{name}-{option}" for name in FRAMEWORKS]
        has_both = "+" in option and all(it in variants for it in pair)
        if not has_both or framework == random.Random(f"{test} {option}").choice(FRAMEWORKS):
            kept.add(variant)
    return kept


def alone(variant: str) -> Row:
    """Return the row of a render that has a snapshot."""
    is_python = language_of(variant) == "python"
    return Row(
        variant,
        answers_of(variant),
        rendered=When.EVERY_RUN,
        linted=in_run(is_python or variant in TYPED),
        typed=in_run(variant in TYPED),
        used=in_run(variant in USED),
        tested=in_run(variant in TESTED),
        switched=in_run(variant in SWITCHED) if variant in SWITCHABLE else When.NEVER,
    )


SWITCHABLE = one_framework("switched", [it for it in VARIANTS if capability_of(it)])
ALONE = [alone(variant) for variant in VARIANTS]

BOTH_MEMORIES = "agentcore-and-knowledge-base"
# Answers of both languages of a framework, besides both memories and all extras.
MANY: dict[str, dict[str, str]] = {
    "strands+s3": {"session_store": "s3", "model": "anthropic", "deploy": "agentcore"},
    "strands+custom": {"session_store": "custom", "model": "openai", "deploy": "kubernetes"},
    "strands+in-process": {"session_store": "in-process", "model": "bedrock"},
    "vercel+valkey": {"session_store": "valkey", "model": "bedrock", "deploy": "container"},
    "vercel+s3": {"session_store": "s3", "model": "anthropic", "deploy": "agentcore"},
    "vercel+custom": {"session_store": "custom", "model": "gateway"},
    "vercel+in-process": {"session_store": "in-process", "model": "openai"},
}
USUAL_MANY = {"strands+custom", "vercel+valkey"}
# The weekly run updates the dependencies of these. A fresh clone, as CI has in every run, installs
# the newest dependencies anyway.
NEWEST = {"vercel+custom-python", "strands+in-process-typescript"}


def crowded(name: str, language: str) -> Row:
    """Return the row of a render with many answers at once."""
    is_usual = name in USUAL_MANY
    answers = {
        "project_name": PROJECT_NAME,
        "target": f"{name.partition('+')[0]}-{language}",
        "long_term_memory": BOTH_MEMORIES,
        "extras": [*EXTRAS],
        **MANY[name],
    }
    return Row(
        f"{name}-{language}",
        answers,
        rendered=in_run(is_usual),
        linted=in_run(is_usual),
        typed=in_run(is_usual),
        used=When.NEVER,
        tested=When.NEVER,
        switched=When.NEVER,
    )


LANGUAGES = ("python", "typescript")
CROWDED = [crowded(name, language) for name in MANY for language in LANGUAGES]


def combinations() -> Iterator[dict[str, Any]]:
    """Answers of renders in which each pair of answers to two questions occurs."""
    choices: dict[str, tuple[Any, ...]] = {
        "target": TARGETS,
        "model": tuple(sorted({model for models in MODELS.values() for model in models})),
        "session_store": ("in-process", *STORES),
        "long_term_memory": ("none", "agentcore", "knowledge-base", BOTH_MEMORIES),
        "deploy": ("none", "container", "agentcore", "kubernetes"),
        **dict.fromkeys(EXTRAS, (False, True)),
    }
    parts = itertools.combinations(choices, 2)
    pairs = {
        ((one, a), (other, b))
        for one, other in parts
        for a, b in itertools.product(choices[one], choices[other])
        if is_allowed({one: a, other: b})
    }
    chosen = random.Random(0)
    while pairs:
        tries = list[tuple[int, dict[str, Any]]]()
        first = min(pairs, key=repr)
        for _ in range(12):
            answers = {name: chosen.choice(values) for name, values in choices.items()}
            answers |= dict(first)
            if is_allowed(answers):
                tries.append((len(pairs & pairs_of(answers)), answers))
        _, best = max(tries, key=lambda it: it[0])
        pairs -= pairs_of(best)
        extras = [extra for extra in EXTRAS if best.pop(extra)]
        yield {"project_name": PROJECT_NAME, **best, "extras": extras}


def pairs_of(answers: dict[str, Any]) -> set[Any]:
    """Return the pairs of answers that a render has."""
    return set(itertools.combinations(answers.items(), 2))


def is_allowed(answers: dict[str, Any]) -> bool:
    """Return whether copier.yml accepts these answers together."""
    is_strands = answers.get("target", "").startswith("strands")
    is_kubernetes = answers.get("deploy") == "kubernetes"
    is_refused = is_kubernetes and answers.get("session_store") == "in-process"
    return not is_refused and not (is_strands and answers.get("model") == "gateway")


PAIRS = [
    Row(
        f"{answers['target']}-{number}",
        answers,
        rendered=When.WEEKLY,
        linted=When.WEEKLY,
        typed=When.WEEKLY,
        used=When.NEVER,
        tested=When.NEVER,
        switched=When.NEVER,
    )
    for number, answers in enumerate(combinations())
]


def params(rows: Iterable[Row], job: Job) -> list[ParameterSet]:
    """Return the rows of a test: those of every run, and those of the weekly run marked so."""
    return [
        pytest.param(row, id=row.name, marks=[] if when is When.EVERY_RUN else [pytest.mark.full])
        for row in rows
        if (when := getattr(row, job)) is not When.NEVER
    ]


def in_turn(variant: int, row: int, *, variants: int, rows: int) -> bool:
    """Return whether a variant has a row of a test whose rows its variants share.

    Each variant has at least one of the rows, and each row at least one variant.
    """
    return (row - variant) % min(variants, rows) == 0


KINDS = {
    "the defaults, and each other answer on its own": ALONE,
    "both memories and all extras, with each store": CROWDED,
    "a set that covers each pair of answers": PAIRS,
}
COLUMNS: dict[str, Job] = {
    "render": "rendered",
    "lint": "linted",
    "type check": "typed",
    "the project's tests": "tested",
}


def summary() -> str:
    """Return the table of README: when each kind of combination is rendered, linted and tested."""
    lines = [
        f"| answers | projects | {' | '.join(COLUMNS)} |",
        f"|---|---|{'---|' * len(COLUMNS)}",
    ]
    for kind, rows in KINDS.items():
        cells = [cell([getattr(row, job) for row in rows]) for job in COLUMNS.values()]
        lines.append(f"| {kind} | {len(rows)} | {' | '.join(cells)} |")
    lines.append(f"| any other combination | | {' | '.join([When.NEVER] * len(COLUMNS))} |")
    return "\n".join(lines)


def cell(times: list[When]) -> str:
    """Return when a job is done with all rows of a kind, and with how many in every run."""
    usual = times.count(When.EVERY_RUN)
    if usual == len(times):
        return When.EVERY_RUN
    if When.NEVER in times:
        assert usual == 0, "either all renders of a kind are in some run, or none is"
        return When.NEVER
    return f"weekly; {usual} in every run" if usual else When.WEEKLY
