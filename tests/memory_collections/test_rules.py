"""Every rule of memory collections, in both languages: the same verdict, ids, files and lines."""

import re
from pathlib import Path
from typing import Any

import pytest

from hooks.variants import STORES
from tests.conftest import Once, Rendered
from tests.memory_collections.projects import (
    FOLDER,
    LANGUAGES,
    RENDERS,
    Case,
    as_lines,
    cases,
    findings,
    findings_of_both,
    ids,
    run_in_render,
)

CASES = cases()
FIELD_ERRORS = {"AML-E301", "AML-E302", "AML-E303"}


# Four times the text takes 4 times as long in linear time, and 16 times in quadratic time.
RATIO = 8
FLOOR = 0.3  # seconds of CPU time

Found = dict[str, list[list[dict[str, object]]]]


@pytest.fixture(scope="module")
def found(once: Once, tmp_path_factory: pytest.TempPathFactory) -> Found:
    """The findings in the project of each case, by language."""

    def make() -> Found:
        top = tmp_path_factory.mktemp("projects")
        projects = [case.write(top / str(number)) for number, case in enumerate(CASES)]
        return findings_of_both(projects)

    made: Found = once("vectors", make)
    return made


@pytest.mark.slow
@pytest.mark.parametrize("language", LANGUAGES)
def test_each_vector_has_its_findings(language: str, found: Found) -> None:
    lines = [sorted(as_lines(one)) for one in found[language]]
    expected = {case.name: sorted(case.expected) for case in CASES}
    assert dict(zip([case.name for case in CASES], lines, strict=True)) == expected


@pytest.mark.slow
def test_both_languages_have_the_same_sentences_and_fields(found: Found) -> None:
    python, typescript = (
        [sorted(map(_comparable, one)) for one in each] for each in found.values()
    )
    pairs = zip(CASES, python, typescript, strict=True)
    assert {case.name: (one, other) for case, one, other in pairs if one != other} == {}


def _comparable(finding: dict[str, object]) -> str:
    """The message; of a library's words, only the field that they are about."""
    id, message = str(finding["id"]), str(finding["message"])
    if id == "AML-E002":
        return id
    return f"{id} {message.split(': ')[0]}" if id in FIELD_ERRORS else f"{id} {message}"


@pytest.mark.slow
@pytest.mark.parametrize("language", LANGUAGES)
def test_no_message_quotes_a_secret(language: str, found: Found) -> None:
    messages = [str(one["message"]) for each in found[language] for one in each]
    assert not [text for text in messages if "user:pass" in text or "me:pass" in text]


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.parametrize("language", LANGUAGES)
def test_a_render_for_each_store_has_no_findings(language: str, rendered: Rendered) -> None:
    chosen = [f"strands-{language}+{name}" for name in dict.fromkeys(RENDERS.values())]
    projects = [
        {"folder": str(rendered(name)), "render": name.rpartition("+")[2]} for name in chosen
    ]
    assert findings(language, projects) == [[] for _ in chosen]


# Of `check --against`: tests/memory_collections/test_versions.py breaks them.
AGAINST = {"AML-E016", "AML-E017"}


@pytest.mark.parametrize("language", LANGUAGES)
def test_each_id_in_the_source_has_a_vector_that_breaks_it(language: str) -> None:
    assert {id for case in CASES for id in _ids(case)} == ids(language) - AGAINST


@pytest.mark.parametrize("language", LANGUAGES)
def test_only_the_list_of_backends_is_generated(language: str) -> None:
    folder = FOLDER.parents[2] / "template" / language
    sources = [*folder.glob("*/src/**/collections/*.jinja"), *folder.glob("*/tests/collections*")]
    sources += folder.glob("*/tests/test_collections*")
    generated = [
        path for path in sources if path.suffix == ".jinja" and "{%" in path.read_text("utf-8")
    ]
    assert [path.name.partition(".")[0] for path in generated] == ["backends"]
    assert generated[0].read_text("utf-8").count("{% if ") < 4


def test_each_vector_of_a_rule_is_about_that_rule() -> None:
    for case in CASES:
        if match := re.fullmatch("(AML-[EW][0-9A-F]{3}).* (wrong|right)", case.name):
            assert (match[1] in _ids(case)) == (match[2] == "wrong"), case.name


def test_no_two_vectors_are_the_same() -> None:
    made = [repr((one.example, one.edits, one.agent, one.render, one.variables)) for one in CASES]
    assert len({*made}) == len(made)


def test_the_examples_are_of_each_backend() -> None:
    assert {*RENDERS.values()} == {*STORES, "agentcore", "knowledge-base"}


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("render", ["agentcore", *STORES])
def test_no_pattern_needs_more_than_linear_time(language: str, render: str) -> None:
    """A quadratic one needs ten seconds and more of CPU time for 100 kB."""
    folders = ["collections", "memory"] if render == "agentcore" else ["collections"]
    texts = [*zip(hostile_texts(25_000), hostile_texts(100_000), strict=True)]
    request = {"folders": folders, "texts": texts, "ratio": RATIO, "floor": FLOOR}
    found = run_in_render(language, render, "patterns", request)
    assert found["slow"] == []
    assert found["tried"] > 10


def hostile_texts(size: int) -> list[str]:
    """Texts of parts that repeat, behind something that patterns begin with, with a wrong end."""
    parts = [*" -./:;,!?_#@{}[]()*+='", "a", "0", "a.", "a-", "a/", "a:", ". ", "{a", "{a}", "0a"]
    parts += ["}{", "/{actorId}", "{actorId}", "-{a}", "---\n", "arn:aws:", "%40"]
    starts = ["", "{", "arn:aws:", "1.0.0-"]
    return [start + part * (size // len(part)) + "\0" for start in starts for part in parts]


@pytest.mark.slow
@pytest.mark.parametrize("language", LANGUAGES)
def test_a_long_description_does_not_keep_check_busy(language: str, tmp_path: Path) -> None:
    """It took 40 s of CPU time for the first of them."""

    def described(part: str, size: int) -> list[Any]:
        text = part * (size // len(part.encode()))
        return [['"Sessions"', "Sessions"], _described(text)]

    parts = ("..", "!.?", "a. ", ". . ", "\u3002")
    few, many = ([described(part, size) for part in parts] for size in (20_000, 80_000))
    assert_linear_time(language, tmp_path, few, many, "AML-W222")


@pytest.mark.slow
@pytest.mark.parametrize("language", LANGUAGES)
def test_brackets_in_brackets_do_not_keep_check_busy(language: str, tmp_path: Path) -> None:
    """The first took 18 s of CPU time."""

    def nested(depth: int) -> list[list[Any]]:
        texts = ["[" * depth * 2 + "]" * depth * 2, "[a, " * depth + "]" * depth, "{a: " * depth]
        return [[["port: 6379", f"port: {text}"]] for text in texts]

    assert_linear_time(language, tmp_path, nested(2000), nested(8000), "AML-E00D")


def assert_linear_time(
    language: str, folder: Path, few: list[list[Any]], many: list[list[Any]], id: str
) -> None:
    """Check projects with these edits: each has the finding `id`, and the time is linear.

    The edits in `many` are four times as long as those in `few`.
    """
    cases = [Case("", "valkey", edits, []) for edits in (*few, *many)]
    projects = [case.write(folder / str(number)) for number, case in enumerate(cases)]
    checked = run_in_render(language, "valkey", "check", projects)
    assert [[it["id"] for it in one["found"]] for one in checked] == [[id]] * len(cases)
    spent = [one["seconds"] for one in checked]
    pairs = zip(spent[: len(few)], spent[len(few) :], strict=True)
    assert [(short, long) for short, long in pairs if long > RATIO * short + FLOOR] == []


def _described(text: str) -> dict[str, object]:
    return {"cut": ["  description:", "  owner:"], "by": f"  description: '{text}x'\n"}


def _ids(case: Case) -> set[str]:
    return {line.split()[0] for line in case.expected}
