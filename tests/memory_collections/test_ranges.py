"""The ranges, values and defaults of fields.yaml are what both languages allow, and have."""

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Once
from tests.memory_collections.projects import (
    EXAMPLES,
    FOLDER,
    LANGUAGES,
    Case,
    as_lines,
    files_of,
    findings,
    findings_of_both,
    in_renders,
    read_yaml,
)

# A field of one backend or transport is tried in the examples of it, any other in this one.
OF_TYPE = {
    "agentcore_memory": ["agentcore"],
    "custom": ["rest", "lambda"],
    "knowledge_base": ["knowledge-base"],
    "rest-api": ["rest"],
}
PATHS = {"agent": "agents/support.agent.md", "iam": "iam/support.iam.md"}
# What a text, a number and a truth value are not.
OTHERS = ["null", "[]", "{}", "7", "0.5", "true", '"true"', '"7"', '""']
Row = dict[str, Any]
ROWS: list[Row] = read_yaml((FOLDER / "fields.yaml").read_text("utf-8"))
INVALID = "AML-E302"
Lines = list[str]


def examples_of(row: Row) -> list[str]:
    types = re.findall(r"\[([a-z0-9_-]+)\]", row["field"])
    if row["file"] == "collection" and row["field"].startswith("backend[custom].transport.cred"):
        return ["rest"]  # the other transport has a scheme, and nothing else
    return OF_TYPE.get(types[-1], types[-1:]) if types else ["valkey"]


def path_of(example: str, row: Row) -> str:
    collection = next(path for path in files_of(example) if path.startswith("collections/"))
    return PATHS.get(row["file"], collection)


def steps_of(row: Row) -> list[str]:
    return re.sub(r"\[[a-z0-9_-]+\]", "", row["field"]).split(".")


def depth(line: str) -> int:
    """How far the key of a line is indented; the dash of a list counts as a blank."""
    return len(line) - len(line.lstrip(" -"))


def end_of(lines: Lines, start: int) -> int:
    """The line behind a key and all that is in it."""
    end = start + 1
    while depth(lines[end]) > depth(lines[start]) and lines[end] != "---":
        end += 1
    return end


def find(lines: Lines, steps: list[str]) -> tuple[int, int]:
    """The line of a field, and how many of the steps to it are there; * is the first key."""
    place, count = 0, 0
    first, last = 1, lines.index("---", 1)
    for step in steps:
        inner = [number for number in range(first, last) if lines[number].strip()]
        column = depth(lines[inner[0]]) if inner else -1
        for number in inner:
            key = lines[number].lstrip(" -").partition(": ")[0].rstrip(":")
            if depth(lines[number]) == column and step in ("*", key):
                break
        else:
            break
        place, count = number, count + 1
        first, last = number + 1, end_of(lines, number)
    return place, count


def placed(text: str, steps: list[str], literal: str) -> tuple[str, int]:
    """A file in which a field has this value, and the line of the field, from 1."""
    lines = text.split("\n")
    place, count = find(lines, steps)
    if count == len(steps):
        key = re.match(r'[ -]*("[^"]*"|[^:]*):', lines[place])
        assert key
        lines[place : end_of(lines, place)] = [f"{key[0]} {literal}"]
        return "\n".join(lines), place + 1
    assert count == len(steps) - 1, f"there is no {steps[count]} in the example"
    blanks = " " * (depth(lines[place]) + 2)
    lines.insert(place + 1, f"{blanks}{steps[-1]}: {literal}")
    return "\n".join(lines), place + 2


def without(text: str, steps: list[str]) -> str:
    """A file that lacks a field; what had nothing else in it is an empty mapping."""
    lines = text.split("\n")
    place, count = find(lines, steps)
    if count < len(steps):
        return text
    del lines[place : end_of(lines, place)]
    above, _ = find(lines, steps[:-1])
    if len(steps) > 1 and end_of(lines, above) == above + 1:
        lines[above] += " {}"
    return "\n".join(lines)


def case(name: str, example: str, row: Row, literal: str, is_allowed: bool) -> Case:
    """A project whose field has this value; where it is refused this is all that is found."""
    path = path_of(example, row)
    text, line = placed(files_of(example)[path], steps_of(row), literal)
    refused = f"{row.get('refused', INVALID)} {path}:{line}"
    title = f"{name} for {row['file']} {row['field']} in {example}"
    edits = [{"file": path, "text": text}]
    return Case(title, example, edits, [] if is_allowed else [refused])


def numbers(row: Row) -> Iterator[tuple[str, bool]]:
    """Numbers beside and within a range, and whether they are allowed."""
    low, high = row["range"]
    for number in (low, high):
        yield str(number), True
        yield f"{number}.0", True  # a whole number, whatever its notation
    for number in (low - 1, high + 1, 1e300, -1e300):
        yield str(number), False
    yield from ((word, False) for word in (".inf", "-.inf", ".nan"))
    if isinstance(row.get("default"), float):
        yield repr(math.nextafter(low, -math.inf)), False
        yield repr(math.nextafter(high, math.inf)), False
        yield repr((low + high) / 2), True
    else:
        yield f"{low}.5", False


def of_range(row: Row) -> Iterator[Case]:
    is_list = isinstance(row.get("default"), list)
    for example in examples_of(row):
        for number, is_allowed in numbers(row):
            literal = f"[{number}]" if is_list else number
            yield case(literal, example, row, literal, is_allowed)
        for literal in OTHERS:
            is_number = re.fullmatch("[0-9.]+", literal)
            if not is_number and not (is_list and literal == "[]"):
                yield case(literal, example, row, literal, False)


def of_values(row: Row) -> Iterator[Case]:
    values = row["values"]
    texts = [value for value in values if isinstance(value, str)]
    beside = [
        other
        for value in texts
        for other in (f"{value}x", value[:-1], f" {value}", f"{value} ", value.swapcase())
        if other not in values
    ]
    own = [json.dumps(value) for value in values]
    for example in examples_of(row):
        for literal in own:
            yield case(literal, example, row, literal, True)
        for literal in dict.fromkeys([*map(json.dumps, beside), *OTHERS, *texts[:1]]):
            plain = literal in texts and not re.fullmatch("[0-9.]+", literal)
            if literal not in own and not plain:
                yield case(literal, example, row, literal, False)


def cases() -> list[Case]:
    ranges = [case for row in ROWS if "range" in row for case in of_range(row)]
    return ranges + [case for row in ROWS if "values" in row for case in of_values(row)]


CASES = cases()


@pytest.fixture(scope="module")
def found(once: Once, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The findings in the project of each case, by language."""

    def make() -> dict[str, Any]:
        top = tmp_path_factory.mktemp("projects")
        projects = [one.write(top / str(number)) for number, one in enumerate(CASES)]
        return findings_of_both(projects)

    made: dict[str, Any] = once("ranges", make)
    return made


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.parametrize("language", LANGUAGES)
def test_values_at_a_limit_are_valid_and_beyond_it_invalid(
    language: str, found: dict[str, Any]
) -> None:
    wrong = {}
    for one, lines in zip(CASES, map(as_lines, found[language]), strict=True):
        # A value that is allowed may break another rule: the backend of another example, say.
        told = lines if one.expected else [line for line in lines if INVALID in line]
        if told != one.expected:
            wrong[one.name] = (told, one.expected)
    assert wrong == {}


@pytest.mark.full
def test_both_languages_find_the_same_beside_and_within(found: dict[str, Any]) -> None:
    python, typescript = ([sorted(as_lines(one)) for one in each] for each in found.values())
    pairs = zip(CASES, python, typescript, strict=True)
    assert {one.name: (a, b) for one, a, b in pairs if a != b} == {}


def loaded(language: str, projects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What each project has as values of its fields."""
    return in_renders(language, "defaults", projects)


def lacking() -> Iterator[tuple[Row, Case]]:
    """For each default the projects in which nothing else gives the field its value."""
    for row in (row for row in ROWS if "default" in row):
        # An agent that uses no collection needs no grants.
        examples = ["agentcore"] if row["file"] == "iam" else examples_of(row)
        for example in examples:
            path, steps = path_of(example, row), steps_of(row)
            cuts = [steps, *([steps[:-1]] if steps[-2:-1] == ["retry_policy"] else [])]
            for cut in cuts:
                text = without(files_of(example)[path], cut)
                assert find(text.split("\n"), cut)[1] == len(cut) - 1
                name = f"{row['file']} {row['field']} without {'.'.join(cut)} in {example}"
                yield row, Case(name, example, [{"file": path, "text": text}], [])


@pytest.fixture(scope="module")
def lacks(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Row, Case, dict[str, Any]]]:
    top = tmp_path_factory.mktemp("lacks")
    made = enumerate(lacking())
    return [(row, one, one.write(top / str(number))) for number, (row, one) in made]


@pytest.mark.full
@pytest.mark.parametrize("language", LANGUAGES)
def test_a_field_that_is_not_there_has_its_default(
    language: str, lacks: list[tuple[Row, Case, dict[str, Any]]]
) -> None:
    projects = [project for _, _, project in lacks]
    for (_, one, _), found in zip(lacks, findings(language, projects), strict=True):
        # An agent that only writes to its session collection breaks a rule, but can be loaded.
        errors = [line for line in as_lines(found) if "-E" in line and "-E10C" not in line]
        assert errors == [], one.name
    wrong = {}
    models = loaded(language, projects)
    for (row, one, _), found_models in zip(lacks, models, strict=True):
        value: Any = found_models[row["file"]]
        for step in steps_of(row):
            value = next(iter(value.values())) if step == "*" else value[step]
        if value != row["default"] or type(value) is not type(row["default"]):
            wrong[one.name] = (value, row["default"])
        if row["field"].endswith("_collections"):
            key = "reads" if row["field"].endswith("read_collections") else "writes"
            if found_models[key] != row["default"]:
                wrong[f"{one.name}, {key}"] = (found_models[key], row["default"])
    assert wrong == {}


@pytest.mark.full
def test_both_languages_load_the_same(
    lacks: list[tuple[Row, Case, dict[str, Any]]], tmp_path: Path
) -> None:
    whole = [Case(name, name, [], []).write(tmp_path / name) for name in EXAMPLES]
    projects = [*whole, *(project for _, _, project in lacks)]
    python, typescript = loaded("python", projects), loaded("typescript", projects)
    assert [pair for pair in zip(python, typescript, strict=True) if pair[0] != pair[1]] == []
