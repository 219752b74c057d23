"""README and the skill name the answers that a copy takes, or that CHANGELOG announces."""

import re
from pathlib import Path

import pytest

from hooks import releases
from hooks.check_history import past
from hooks.template import Template
from tests.conftest import ROOT
from tests.installed import this_template

SKILL = ROOT / ".github" / "skills" / "agent-template" / "SKILL.md"
TEXTS = [ROOT / "README.md", SKILL, *(ROOT / ".github").glob("*.md")]
ROW = re.compile(r"(?m)^\| `(\w+)` \| (.*) \|$")
# As in `-d deploy=container`, `'extras=[mcp, ui]'` and the link text `extras=[ui]`.
ANSWER = re.compile(r"\b([a-z_]+)=(\[[a-z, -]+\]|[a-z0-9]+(?:-[a-z0-9]+)*)")

Answers = set[tuple[str, str]]  # a question and a choice


def answers_of(template: Template) -> Answers:
    """The choices of a template, each with its question."""
    return {(name, value) for name in template.asked for value, _ in template.choices(name, {})}


def in_tables(path: Path, known: set[str]) -> Answers:
    """The answers that the table of questions lists."""
    rows = ROW.findall(path.read_text("utf-8"))
    return {
        (question, answer)
        for question, cell in rows
        if question in known
        for answer in re.findall(r"`([a-z0-9-]+)`", cell)
    }


def in_commands(path: Path, known: set[str]) -> Answers:
    """The answers that commands give."""
    return {
        (question, answer)
        for question, value in ANSWER.findall(path.read_text("utf-8"))
        if question in known
        for answer in value.strip("[]").replace(" ", "").split(",")
    }


@pytest.fixture(scope="module")
def now() -> Template:
    return this_template()


@pytest.fixture(scope="module")
def released() -> Answers:
    """The answers that a copy of the newest release takes."""
    newest = releases.releases(ROOT)[-1]
    assert releases.last_here(ROOT) == newest, "run git fetch --unshallow"
    with past(ROOT, newest.commit) as template:
        return answers_of(template)


def announced(text: str, answers: Answers) -> Answers:
    """The answers that a section of CHANGELOG names, as in `deploy=x` or `extras=[x]`."""
    return {
        (question, answer)
        for question, answer in answers
        if re.search(rf"\b{question}=\[?{answer}\b(?!-)", text)
    }


def test_readme_lists_each_answer(now: Template) -> None:
    with_choices = {question for question, _ in answers_of(now)}
    assert in_tables(ROOT / "README.md", with_choices) == answers_of(now)
    rows = [name for name, _ in ROW.findall((ROOT / "README.md").read_text("utf-8"))]
    assert rows == now.asked


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name)
def test_texts_name_answers_that_are_released_or_announced(
    path: Path, now: Template, released: Answers
) -> None:
    questions = {*now.questions}
    named = in_tables(path, questions) | in_commands(path, questions)
    named = {(question, answer) for question, answer in named if question != "project_name"}
    assert named <= answers_of(now)
    missing = named - released - announced(releases.unreleased(ROOT), named)
    assert missing == set(), "neither the newest release nor CHANGELOG has them"


def test_every_question_and_answer_that_is_not_released_is_announced(
    now: Template, released: Answers
) -> None:
    new = answers_of(now) - released
    assert new - announced(releases.unreleased(ROOT), new) == set()


def test_an_answer_is_announced_by_its_own_name() -> None:
    answers = {("deploy", "container"), ("extras", "ui"), ("long_term_memory", "agentcore")}
    assert announced("`-d deploy=container`, `ui`", answers) == {("deploy", "container")}
    assert announced("`long_term_memory=agentcore-and-x`, `extras=[auth]`", answers) == set()
