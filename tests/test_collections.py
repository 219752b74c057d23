"""Every rule of memory collections, in both languages: the same ids, files, lines and words."""

import re

import pytest

from hooks.variants import VARIANTS
from tests.collections_check import EXAMPLES, Case, as_lines, cases, findings, rules
from tests.conftest import Rendered

CASES = cases()
# No file can break these: AgentCore Memory says so, or a saved policy. The renders' tests do.
OF_THE_SERVICE = {"AML-E112", *(f"AML-W24{number}" for number in range(3, 9))}


@pytest.fixture(scope="module")
def projects(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, object]]:
    top = tmp_path_factory.mktemp("projects")
    return [case.write(top / str(number)) for number, case in enumerate(CASES)]


@pytest.mark.slow
@pytest.mark.parametrize("language", ["python", "typescript"])
def test_each_vector_gives_the_findings_that_it_says(
    language: str, projects: list[dict[str, object]]
) -> None:
    found = [as_lines(one) for one in findings(language, projects)]
    expected = {case.name: case.expected for case in CASES}
    assert dict(zip(expected, found, strict=True)) == expected


@pytest.mark.slow
def test_both_languages_say_the_same(projects: list[dict[str, object]]) -> None:
    python, typescript = findings("python", projects), findings("typescript", projects)
    different = {
        case.name: (one, other)
        for case, one, other in zip(CASES, python, typescript, strict=True)
        if one != other
    }
    assert different == {}


@pytest.mark.slow
def test_a_message_has_no_name_left_and_quotes_no_secret(
    projects: list[dict[str, object]],
) -> None:
    messages = [one["message"] for found in findings("python", projects) for one in found]
    names = {name for row in rules().values() for name in re.findall(r"\{(\w+)\}", row["message"])}
    left = names - {"actorId", "projectId", "sessionId"}
    assert not [text for text in messages if re.search(r"\{(" + "|".join(left) + r")\}", text)]
    assert not [text for text in messages if "user:pass" in text or "me:pass" in text]


@pytest.mark.slow
@pytest.mark.parametrize("language", ["python", "typescript"])
def test_what_is_rendered_for_each_store_has_no_findings(language: str, rendered: Rendered) -> None:
    kept = [name for name, answers in VARIANTS.items() if "session_store" in answers]
    folders = [str(rendered(name)) for name in kept]
    projects = [{"folder": folder, "agent_id": None, "against": None} for folder in folders]
    assert dict(zip(kept, findings(language, projects), strict=True)) == {n: [] for n in kept}


def test_each_rule_has_a_vector_that_breaks_it_and_one_that_does_not() -> None:
    by_name = {case.name: case for case in CASES}
    for id in rules().keys() - OF_THE_SERVICE:
        assert id in told(by_name[f"{id} wrong"]), id
        assert id not in told(by_name[f"{id} right"]), id
    assert len(by_name) == len(CASES)


def test_no_vector_names_an_unknown_rule() -> None:
    assert {id for case in CASES for id in told(case)} == rules().keys() - OF_THE_SERVICE


def test_the_examples_are_of_each_backend_and_without_findings() -> None:
    assert EXAMPLES == ["agentcore", "lambda", "rest", "s3", "valkey"]
    assert {case.name for case in CASES if case.name.startswith("example")} == {
        f"example {name}" for name in EXAMPLES
    }


def test_each_row_of_the_rules_is_whole() -> None:
    for id, row in rules().items():
        assert re.fullmatch("AML-[EW][0-9A-F]{3}", id)
        assert row["severity"] == ("error" if id[4] == "E" else "warning")
        assert row["file"] in ("any", "collection", "agent", "iam")
        assert row["kind"] in ("missing", "invalid", "unknown", "rule")
        assert re.match("[A-Z{a-z]", row["message"])
        assert row["message"].endswith(".")


def told(case: Case) -> set[str]:
    return {line.split()[0] for line in case.expected}
