"""Habits of translated English: planted habits are counted, right uses are not."""

from pathlib import Path

import pytest

from hooks import habits
from tests.conftest import ROOT
from tests.template.test_check import PROJECT, SOUND, build, keep_variants
from tests.template.test_hooks import Hooks, hooks

__all__ = ["hooks"]  # a fixture


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small template without habits, which allows none."""
    keep_variants(monkeypatch, "strands-python")
    monkeypatch.setattr(habits, "LIMIT", 0)
    root = build(tmp_path / "template", SOUND)
    monkeypatch.chdir(root)
    return root


def test_check_reports_a_habit_above_the_limit(
    hooks: Hooks, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "\nhabits of translated English: 0\n" in hooks("check").out
    agent = root / PROJECT / "src" / "my_agent" / "agent.py"
    agent.write_text("# Return what is stored.\nprint('agent')\n")
    (root / "README.md").write_text("# A\n\nRename no file, or take another one.\n")
    result = hooks("check")
    result.refused(1, "findings: 1")
    assert "habits template has 3 (.md 2, .py 1) habits of translated English; at" in result.out
    assert hooks("habits").out.splitlines() == [
        f"habit {PROJECT}/src/my_agent/agent.py:1 what is, what the",
        "habit README.md:3 pronoun one",
        "habit README.md:3 no + verb",
    ]
    monkeypatch.setattr(habits, "LIMIT", 3)
    assert hooks("check").code == 0


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("A tool is told its caller.", ["told, tells of"]),
        ("Return what the store has.", ["what is, what the"]),
        ("Use the new one, not the old one.", ["pronoun one", "pronoun one"]),
        ("It waits for so many seconds.", ["so many, so long"]),
        ("A summary in place of messages.", ["in place of, by now"]),
        ("The log names tools, who calls them.", ["who + verb"]),
        ("Return the name, or '' if there is none.", ["there is none"]),
        ("Move no file.", ["no + verb"]),
        ("I am the offline model: I repeat what I am told.", []),
        ("> What is my name?", []),
        ("Choose one of the two.", []),
        ("Only one tool of this name is used, and no one asks.", []),
        ("    if there is None:", []),
        ("    if name is None:", []),
    ],
)
def test_a_habit_is_found_by_its_words(line: str, names: list[str], tmp_path: Path) -> None:
    path = tmp_path / "text.md"
    path.write_text(f"A line.\n{line}\n")
    assert list(habits.find_habits(path)) == [(2, name) for name in names]


@pytest.mark.parametrize("name", ["page.min.js", "page.min.js.jinja", "icon.svg", "habits.py"])
def test_libraries_pictures_and_the_table_are_not_texts(name: str, root: Path) -> None:
    (root / PROJECT / name).write_text("what is stored\n")
    assert habits.count_habits(root).total() == 0


def test_a_template_of_jinja_counts_as_the_file_that_it_renders(root: Path) -> None:
    (root / PROJECT / "NEWS.md.jinja").write_text("what is stored\n")
    (root / PROJECT / "Dockerfile.jinja").write_text("# what is stored\n")
    assert habits.count_habits(root) == {".md": 1, "other": 1}


def test_this_repository_has_no_more_habits_than_allowed() -> None:
    assert list(habits.check_habits(habits.count_habits(ROOT))) == []
