"""The questions: defaults that always work, and wrong answers that are refused with a reason."""

import json
import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from copier import run_copy

from hooks.variants import TARGETS, VARIANTS
from tests.conftest import Rendered
from tests.installed import environment, this_template

TEMPLATE = this_template()
QUESTIONS: dict[str, Any] = TEMPLATE.questions
ASKED = {
    name: question for name, question in QUESTIONS.items() if question.get("when") is not False
}
CHOICES = {name: list(TEMPLATE.choices(name, {})) for name in ASKED if "choices" in ASKED[name]}

FORM = "like my-agent: a letter, then letters a-z, digits or single hyphens; at most 40"
TAKEN = "the project needs a package or command of this name"
NO_TEXT = "Could not convert|Invalid answer"
NAMES: dict[str, list[Any]] = {
    FORM: [
        *("", " ", "My Agent", "my_agent", "my.agent", "42", "1st", "ä", "-a", "a-", "a--b"),
        *("a/b", "../a", "a;date", "$(date)", "{{ 7 }}", "a'b", 'a"b', "a\\b", "a\x00", "a" * 41),
        *("my-agent\n", "\nmy-agent", "my\nagent", "my-agent\nfoo: bar", "my-agent\u2028"),
        *(42, True),
    ],
    TAKEN: ["click", "python", "strands-agents", "uv", "openai", "con"],
    NO_TEXT: [["a", "b"], {"a": 1}, None],
}
WRONG: dict[str, dict[str, list[Any]]] = {
    "project_name": NAMES,
    "target": {
        "'target'": ["", "strands", "Strands-Python", "rust", 1],
        NO_TEXT: [["strands-python"], None],
    },
    "package_name": {
        "like my_agent": ["", "My", "a-b", "1a", "a__b", "_a", "a_", "a" * 47, 1],
        "needs a module of this name": ["json", "strands", "class", "tests"],
        NO_TEXT: [["a"], None],
    },
    "model": {
        "'model'": ["", "gpt", "Bedrock", "openai ", 1],
        NO_TEXT: [["openai"], None],
    },
    "session_store": {
        "'session_store'": ["", "redis", "Valkey", "s3 ", 1],
        NO_TEXT: [["valkey"], None],
    },
    "long_term_memory": {
        "'long_term_memory'": ["", "aws", "AgentCore", "none ", 1],
        NO_TEXT: [["agentcore"], None],
    },
    "deploy": {
        "'deploy'": ["", "docker", "Container", "none ", 1],
        NO_TEXT: [["container"], None],
    },
    "extras": {
        "Not a YAML list": ["tracing"],
        "not iterable": [1, True],
        "Invalid choice": [["otel"], ["mcp", ""], [1]],
    },
}


@pytest.fixture(scope="module")
def only_questions(template: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A template that renders the answers and nothing else, to read only."""
    folder = tmp_path_factory.mktemp("only") / "questions"
    (answers,) = (template / "template" / "python").glob("*answers_file*")
    for path in (Path("copier.yml"), answers.relative_to(template)):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(template / path, folder / path)
    return folder


@pytest.mark.parametrize(
    ("question", "answer", "reason"),
    [
        (question, answer, reason)
        for question, reasons in WRONG.items()
        for reason, answers in reasons.items()
        for answer in answers
    ],
)
def test_a_wrong_answer_is_refused_with_the_reason(
    question: str, answer: object, reason: str, only_questions: Path, tmp_path: Path
) -> None:
    source, dest = str(only_questions), tmp_path / "p"
    with pytest.raises((TypeError, ValueError), match=reason):
        run_copy(source, dest, data={question: answer}, defaults=True, quiet=True)
    assert not (tmp_path / "p").exists()


@pytest.mark.parametrize(
    ("name", "value"), [("approval", "true"), ("valkey", "."), ("stored", "../x"), ("ui", "1")]
)
def test_a_variable_that_is_computed_takes_no_answer(
    name: str, value: str, only_questions: Path, tmp_path: Path
) -> None:
    """Copier would take it, and write a folder of this name."""
    with pytest.raises(
        ValueError, match=f"{name} is not a question. Type an answer, as in -d session"
    ):
        run_copy(str(only_questions), tmp_path / "p", data={name: value}, defaults=True, quiet=True)
    assert not (tmp_path / "p").exists()


@pytest.mark.parametrize("given", [{}, {"project_name": "p"}], ids=["", "with its name"])
@pytest.mark.parametrize("name", ["taget", "model_key", "rendered"])
def test_an_unknown_question_is_refused(
    name: str, given: dict[str, str], only_questions: Path, tmp_path: Path
) -> None:
    data = {**given, name: "vercel-python"}
    with pytest.raises(ValueError, match=f"{name} is not a question. Type an answer, as in -d"):
        run_copy(str(only_questions), tmp_path / "p", data=data, defaults=True, quiet=True)
    assert not (tmp_path / "p").exists()


def test_every_variable_that_is_a_folder_takes_no_answer(template: Path) -> None:
    """One that is missing in the list would be accepted without a word."""
    folders = [path.name for path in (template / "template").rglob("{{ * }}") if path.is_dir()]
    variables = {name.strip("{} ") for name in folders} - {"package_name"}
    questions = yaml.safe_load((template / "copier.yml").read_text("utf-8"))
    assert variables <= set(questions["computed"]["default"].split())
    guarded = {name for name in questions if questions[name] and "computed" in str(questions[name])}
    assert set(questions["computed"]["default"].split()) == guarded - {"computed"}


def listed(answer: Any) -> list[Any]:
    """The choices in one answer: several where the question takes several."""
    return answer if isinstance(answer, list) else [answer]


def test_wrong_answers_to_every_question_are_tried() -> None:
    assert WRONG.keys() == ASKED.keys()


FOLDERS = [
    *("My Agent!", "42", "___", "-", "Ünïcode", "日本", "a.b.c", "{{ 7 }}", "9-lives", "a\u2028b"),
    *("click", "python", "strands-agents", "CON"),
    *("x", "a" * 43, "ab-" * 30, "a" * 33 + "-b"),
]


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_defaults_are_valid_in_any_folder(
    folder: str, only_questions: Path, tmp_path: Path
) -> None:
    run_copy(str(only_questions), tmp_path / folder, defaults=True, quiet=True, overwrite=True)
    answers = yaml.safe_load((tmp_path / folder / ".copier-answers.yml").read_text())
    assert re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", answers["project_name"])
    assert len(answers["project_name"]) <= 40


def test_a_folder_with_a_good_name_gives_the_project_its_name(
    only_questions: Path, tmp_path: Path
) -> None:
    run_copy(str(only_questions), tmp_path / "Weather Desk 2", defaults=True, quiet=True)
    answers = yaml.safe_load((tmp_path / "Weather Desk 2" / ".copier-answers.yml").read_text())
    assert answers["project_name"] == "weather-desk-2"


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_project_name_may_not_equal_a_dependency(variant: str, rendered: Rendered) -> None:
    project = rendered(variant)
    if (project / "package.json").exists():
        manifest = json.loads((project / "package.json").read_text())
        every = [manifest[group] for group in manifest if group.lower().endswith("dependencies")]
        names = {name for group in every for name in group if not name.startswith("@")}
    else:
        data = tomllib.loads((project / "pyproject.toml").read_text())
        groups = [data["project"]["dependencies"], *data.get("dependency-groups", {}).values()]
        names = {re.split(r"[\[<>=~! ;]", line)[0].lower() for group in groups for line in group}
        names = {name.replace(".", "-") for name in names}
    assert names - set(QUESTIONS["taken_names"]["default"].split()) == set()


@pytest.mark.full
@pytest.mark.parametrize("target", [target for target in TARGETS if target.endswith("-python")])
def test_no_default_name_equals_a_transitive_dependency(target: str) -> None:
    installed = environment(target).glob(".venv/lib/*/site-packages/*.dist-info")
    found = {re.split(r"-\d", path.stem)[0].lower() for path in installed}
    names = {re.sub("[-_.]+", "-", name) for name in found}
    assert len(names) > 50
    known = [QUESTIONS[list]["default"].split() for list in ("taken_names", "indirect_names")]
    assert {name for name in names if len(name) <= 40} <= {name for one in known for name in one}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("question", "answer"),
    [(question, value) for question, choices in CHOICES.items() for value, _ in choices],
)
def test_every_choice_renders_and_is_recorded(
    question: str, answer: str, rendered: Rendered
) -> None:
    variants = (name for name, given in VARIANTS.items() if answer in listed(given.get(question)))
    project = rendered(next(variants, next(iter(VARIANTS))))
    answers = yaml.safe_load((project / ".copier-answers.yml").read_text())
    assert answer in listed(answers[question])


def test_only_answers_are_recorded_and_nothing_derived_from_them(rendered: Rendered) -> None:
    project = rendered(next(iter(VARIANTS)))
    recorded = yaml.safe_load((project / ".copier-answers.yml").read_text())
    # `rendered` has the answers once more: an update notices by it that one was edited by hand.
    assert {name for name in recorded if not name.startswith("_")} == {*ASKED, "rendered"}


@pytest.mark.parametrize("name", ASKED)
def test_a_question_is_short_and_validates_its_answer(name: str) -> None:
    question = ASKED[name]
    assert question["type"] == "str"
    assert len(question["help"]) <= 80
    assert {"choices", "validator"} & question.keys()


def test_at_most_eight_questions_are_asked() -> None:
    assert len(ASKED) <= 8


@pytest.mark.slow
def test_every_choice_of_a_question_is_rendered_by_a_variant() -> None:
    recorded: dict[str, set[object]] = {name: set() for name in CHOICES}
    for answers in VARIANTS.values():
        for name, values in recorded.items():
            values.update(listed(answers.get(name, TEMPLATE.default(name, {**answers}))))
    assert recorded == {name: {value for value, _ in choices} for name, choices in CHOICES.items()}
