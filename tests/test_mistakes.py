"""Ten mistakes that an author of this template may make: each is found, by name, and says what
to do. They are made in a copy of the template itself, and looked at as CI does."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

import pytest

from hooks import check_history
from hooks.check_history import EDITED
from hooks.lint import lint
from hooks.loading import load
from tests.test_template import SOUND, build
from tests.updates.history import commit, git

pytestmark = pytest.mark.slow


def questions(root: Path, old: str, new: str) -> None:
    """Edit copier.yml, which must have `old` once."""
    path = root / "copier.yml"
    text = path.read_text("utf-8")
    assert text.count(old) == 1, f"{text.count(old)} x {old!r}"
    path.write_text(text.replace(old, new), "utf-8")


def add(root: Path, text: str) -> None:
    """Add a question, or a setting, to copier.yml."""
    path = root / "copier.yml"
    path.write_text(f"{text}\n{path.read_text('utf-8')}", "utf-8")


def found(root: Path, name: str) -> list[Path]:
    """The files of the template that are called `name`, with .jinja or without."""
    paths = (root / "template").rglob("*")
    return sorted(path for path in paths if path.name.removesuffix(".jinja") == name)


def unsafe_feature(root: Path) -> None:
    add(root, "_tasks: ['uv sync']")


def question_without_default(root: Path) -> None:
    add(root, "region:\n  type: str\n  help: Where?\n  choices: [eu, us]")


def renamed_file(root: Path) -> None:
    for path in found(root, "agent.py"):
        path.rename(path.with_name("assistant.py"))


def dropped_choice(root: Path) -> None:
    questions(root, "    An endpoint of your own: custom\n", "")


def name_that_is_not_portable(root: Path) -> None:
    (root / "template" / "what is new?.md").write_text("x\n")


def secret_question(root: Path) -> None:
    questions(
        root, "  help: Where do sessions live?\n", "  help: Where do they live?\n  secret: true\n"
    )


def typo(root: Path) -> None:
    path = found(root, "pyproject.toml")[0]
    path.write_text(path.read_text("utf-8").replace("project_name", "projct_name"), "utf-8")


def layer_collision(root: Path) -> None:
    (found(root, "agent.py")[0].parent / "{{ 'agent.py' }}").write_text("x = 1\n")


def default_that_should_be_text(root: Path) -> None:
    questions(root, "  default: haiku-4-5\n", "  default: haiku-4-6\n")


def no_answers_file(root: Path) -> None:
    for path in (root / "template").rglob("*_copier_conf.answers_file*"):
        path.unlink()


@dataclass(frozen=True)
class Mistake:
    make: Callable[[Path], None]
    check: str
    where: str
    what_to_do: str


MISTAKES = [
    Mistake(unsafe_feature, "unsafe-feature", "copier.yml:1", "say what to do in a message or"),
    Mistake(question_without_default, "incomplete-question", "copier.yml:1", "no default: add one"),
    Mistake(renamed_file, "lost-file", "src/app/agent.py", "keep its name"),
    Mistake(dropped_choice, "dropped-choice", "copier.yml:", "custom any more, .*: keep it"),
    Mistake(name_that_is_not_portable, "name-character", "template/what is new?.md", "rename it"),
    Mistake(secret_question, "unsafe-feature", "copier.yml:", "secret .*: read it at run time"),
    Mistake(typo, "jinja-undefined", "template/", "uses projct_name, .*: mend the name"),
    Mistake(layer_collision, "layer-overlap", "template/", "make their answers exclude each other"),
    Mistake(default_that_should_be_text, "changed-default", "copier.yml:", "make it text of the"),
    Mistake(no_answers_file, "answers-file", "template", "is missing, so no project could be upd"),
]
# A question whose answer is text that grows old: what it was answered with stays for ever.
OLD_TEXT = """model_id:
  type: str
  help: Which model?
  default: haiku-4-5
  validator: "{{ '' if model_id else 'Name one' }}"
"""


@pytest.fixture
def released(own_template: Path) -> Path:
    """The template in Git, with what it is now as its last release."""
    add(own_template, OLD_TEXT)
    git(own_template, "init", "--quiet")
    commit(own_template, "Released")
    return own_template


def found_by(root: Path) -> list[str]:
    head = git(root, "rev-parse", "HEAD").strip()
    return [str(finding) for finding in lint(root, against=head)]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.make.__name__)
def test_a_mistake_is_found_and_says_what_to_do(mistake: Mistake, released: Path) -> None:
    mistake.make(released)
    findings = found_by(released)
    of_it = [text for text in findings if text.startswith(f"{mistake.check} {mistake.where}")]
    assert of_it, findings
    assert any(re.search(mistake.what_to_do, text) for text in of_it), of_it


def test_without_a_mistake_nothing_is_found(released: Path) -> None:
    assert found_by(released) == []


# What needs the history, in small ------------------------------------------------------------


@pytest.fixture
def small(tmp_path: Path) -> Path:
    root = build(tmp_path / "template", SOUND)
    git(root, "init", "--quiet")
    commit(root, "Released")
    return root


def history(root: Path) -> list[str]:
    with check_history.past(root, "HEAD") as old:
        return [str(finding) for finding in check_history.check_history(old, load(root))]


def test_a_question_may_be_renamed_when_the_new_one_asks_the_old(small: Path) -> None:
    text = (small / "copier.yml").read_text("utf-8").replace("colour", "shade")
    (small / "copier.yml").write_text(text)
    (finding,) = history(small)
    assert finding.startswith("dropped-question copier.yml colour is gone")
    default = "  default: \"{{ colour if colour is defined else 'red' }}\"\n"
    (small / "copier.yml").write_text(text.replace("  default: red\n", default))
    assert history(small) == []


def test_a_choice_may_become_the_default_for_new_projects(small: Path) -> None:
    questions(small, "  default: red\n", "  default: blue\n")
    assert history(small) == []


def test_a_default_may_be_written_in_another_way(small: Path) -> None:
    questions(small, "  default: my-agent\n", "  default: \"{{ 'my-' ~ 'agent' }}\"\n")
    assert history(small) == []
    questions(small, "'my-' ~", "'your-' ~")
    (finding,) = history(small)
    assert finding.startswith("changed-default copier.yml:9 project_name.default was 'my-agent'")


def test_modules_of_the_template_may_be_renamed_and_layers_moved(small: Path) -> None:
    folder = small / "template"
    (folder / "{{ red }}" / "src" / "app" / "main.py").rename(folder / "red.py")
    (folder / "{{ red or '.' }}").mkdir()
    (folder / "README.md.jinja").rename(folder / "{{ red or '.' }}" / "README.md.jinja")
    assert history(small) == []


@pytest.mark.parametrize("pattern", EDITED)
def test_each_pattern_of_a_file_that_owners_edit_fits_one(pattern: str, template: Path) -> None:
    """So that a renamed file is not forgotten there."""
    here = load(template)
    everywhere = set().union(*(check_history.paths(here, c) for c in here.combinations))
    assert [path for path in everywhere if fnmatch(path, pattern)]
