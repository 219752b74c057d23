"""Ten mistakes that an author of a template may make: each is found, by name, and says what to do.

CI looks at them as these tests do: the working tree against the last release.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

import pytest

from hooks import check_history
from hooks.check import check
from hooks.check_history import EDITED
from hooks.loading import load
from tests.installed import this_template
from tests.template.test_check import PROJECT, SOUND, build, keep_variants
from tests.updates.history import commit, git

AGENT = Path(PROJECT, "src", "my_agent", "agent.py")


@pytest.fixture(autouse=True)
def few_variants(monkeypatch: pytest.MonkeyPatch) -> None:
    keep_variants(monkeypatch, "strands-python")


def questions(root: Path, old: str, new: str) -> None:
    """Edit copier.yml, which must have `old` once."""
    path = root / "copier.yml"
    text = path.read_text("utf-8")
    assert text.count(old) == 1, f"{text.count(old)} x {old!r}"
    path.write_text(text.replace(old, new), "utf-8")


def prepend(root: Path, text: str) -> None:
    """Add a question, or a setting, to copier.yml."""
    path = root / "copier.yml"
    path.write_text(f"{text}\n{path.read_text('utf-8')}", "utf-8")


def unsafe_feature(root: Path) -> None:
    prepend(root, "_tasks: ['uv sync']")


def question_without_default(root: Path) -> None:
    prepend(root, "region:\n  type: str\n  help: Where?\n  choices: [eu, us]")


def renamed_file(root: Path) -> None:
    (root / AGENT).rename((root / AGENT).with_name("assistant.py"))


def dropped_choice(root: Path) -> None:
    questions(root, ', Blue: {value: blue, validator: ""}', "")


def name_that_is_not_portable(root: Path) -> None:
    (root / PROJECT / "what is new?.md").write_text("x\n")


def secret_question(root: Path) -> None:
    questions(root, "  help: Which colour?\n", "  help: Which one?\n  secret: true\n")


def typo(root: Path) -> None:
    (root / PROJECT / "NEWS.md.jinja").write_text("{{ projct_name }}\n")


def layer_collision(root: Path) -> None:
    (root / AGENT).with_name("{{ 'agent.py' }}").write_text("x = 1\n")


def default_that_should_be_text(root: Path) -> None:
    # What a project was copied with stays its answer for ever.
    questions(root, "  default: my-agent\n", "  default: your-agent\n")
    questions(root, "project_name != 'my-agent'", "not project_name")


def no_answers_file(root: Path) -> None:
    for path in (root / PROJECT).glob("*_copier_conf.answers_file*"):
        path.unlink()


@dataclass(frozen=True)
class Mistake:
    make: Callable[[Path], None]
    check: str
    where: str
    what_to_do: str


MISTAKES = [
    Mistake(
        unsafe_feature, "unsafe-feature", "copier.yml _tasks", "describe the step in a message"
    ),
    Mistake(question_without_default, "missing-default", "copier.yml region", "add a default"),
    Mistake(renamed_file, "lost-file", "src/my_agent/agent.py", "keep its name"),
    Mistake(dropped_choice, "dropped-choice", "copier.yml colour", "choice blue, .*: keep it"),
    Mistake(name_that_is_not_portable, "name", f"{PROJECT}/what is new?.md", "rename it"),
    Mistake(secret_question, "unsafe-feature", "copier.yml colour.secret", "read it at run time"),
    Mistake(
        typo, "undefined-name", f"{PROJECT}/NEWS.md.jinja:1", "projct_name, .*: correct the name"
    ),
    Mistake(layer_collision, "layer-overlap", PROJECT, "make their answers exclude each other"),
    Mistake(default_that_should_be_text, "changed-default", "copier.yml", "make it text of the"),
    Mistake(no_answers_file, "answers-file", PROJECT, "is missing, so no project could be updated"),
]


@pytest.fixture
def released(tmp_path: Path) -> Path:
    """A template in Git, with what it is now as its last release."""
    root = build(tmp_path / "template", SOUND)
    git(root, "init", "--quiet")
    commit(root, "Released")
    return root


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.make.__name__)
def test_a_finding_says_how_to_correct_the_mistake(mistake: Mistake, released: Path) -> None:
    mistake.make(released)
    findings = [str(finding) for finding in check(released, against="HEAD")]
    of_it = [text for text in findings if text.startswith(f"{mistake.check} {mistake.where}")]
    assert of_it, findings
    assert any(re.search(mistake.what_to_do, text) for text in of_it), of_it


def test_without_a_mistake_nothing_is_found(released: Path) -> None:
    assert check(released, against="HEAD") == []


def history(root: Path) -> list[str]:
    with check_history.past(root, "HEAD") as old:
        return [str(finding) for finding in check_history.check_history(old, load(root))]


def test_a_question_may_be_renamed_when_the_new_one_asks_the_old(released: Path) -> None:
    text = (released / "copier.yml").read_text("utf-8").replace("colour", "shade")
    (released / "copier.yml").write_text(text)
    (finding,) = history(released)
    assert finding.startswith("dropped-question copier.yml colour is gone")
    default = "  default: \"{{ colour if colour is defined else 'red' }}\"\n"
    (released / "copier.yml").write_text(text.replace("  default: red\n", default))
    assert history(released) == []


def test_a_choice_may_become_the_default_for_new_projects(released: Path) -> None:
    questions(released, "  default: red\n", "  default: blue\n")
    assert history(released) == []


def test_a_default_may_be_written_in_another_way(released: Path) -> None:
    questions(released, "  default: my-agent\n", "  default: \"{{ 'my-' ~ 'agent' }}\"\n")
    assert history(released) == []
    questions(released, "'my-' ~", "'your-' ~")
    (finding,) = history(released)
    assert finding.startswith("changed-default copier.yml project_name.default was 'my-agent'")


def test_a_question_that_was_released_may_take_several_answers(released: Path) -> None:
    choices = "choices: [page, traces]\n  default: "
    prepend(released, f"more:\n  type: str\n  help: More?\n  multiselect: true\n  {choices}[]\n")
    commit(released, "Released again")
    assert history(released) == []
    questions(released, f"{choices}[]", f"{choices}[page]")
    assert history(released) == []  # each project keeps what it recorded
    questions(released, "choices: [page, traces]", "choices: [page]")
    (finding,) = history(released)
    assert finding.startswith("dropped-choice copier.yml more no longer has the choice traces")


def test_modules_of_the_template_may_be_renamed_and_layers_moved(released: Path) -> None:
    folder = released / PROJECT
    (folder / "{{ red }}" / "src" / "my_agent" / "main.py").rename(folder / "red.py")
    (folder / "{{ red or '.' }}").mkdir()
    (folder / "README.md.jinja").rename(folder / "{{ red or '.' }}" / "README.md.jinja")
    assert history(released) == []


@pytest.mark.full
@pytest.mark.slow
def test_each_pattern_of_a_file_that_owners_edit_fits_one() -> None:
    """So that a renamed file is not forgotten there."""
    everywhere = {path for places in this_template().targets.values() for path in places}
    unused = [p for p in EDITED if not any(fnmatch(path, p) for path in everywhere)]
    assert unused == []
