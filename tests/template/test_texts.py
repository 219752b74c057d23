"""The texts of this repository: where their links lead, and how long an entry of a version is."""

import re
from functools import cache
from pathlib import Path

import pytest
import yaml

from hooks import releases
from tests.conftest import ROOT

TEXTS = [
    *ROOT.glob("*.md"),
    *(ROOT / ".github").rglob("*.md"),
    *(ROOT / "tests" / "benchmarks").glob("*.md"),
]
TEMPLATE = ROOT / "template"
CONDITION = re.compile(r"\{%-? *(?:el)?if|\{[{%][^}]* if ")
LINK = re.compile(r"\]\(([^)\s]+)\)")


@cache
def anchors(path: Path) -> set[str]:
    """The headings of a text, as GitHub makes addresses of them."""
    titles = re.findall(r"(?m)^#+ (.*)$", path.read_text("utf-8"))
    return {re.sub(r"[^\w\- ]", "", title).strip().lower().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_link_leads_somewhere(path: Path) -> None:
    for link in LINK.findall(path.read_text("utf-8")):
        if re.match("[a-z]+:", link):
            continue
        file, _, anchor = link.partition("#")
        target = path.parent / file if file else path
        assert target.exists(), f"{path.name} links to {link}"
        assert not anchor or anchor in anchors(target), f"{path.name} links to {link}"


def test_the_entries_of_the_next_version_have_three_lines_at_most() -> None:
    for entry in re.split(r"(?m)^- ", releases.unreleased(ROOT))[1:]:
        words, *_ = entry.split("\n\n")
        assert len(words.strip().splitlines()) <= 3, entry


def test_the_entries_of_the_next_version_stand_in_parts() -> None:
    if text := releases.unreleased(ROOT):
        releases.check_parts(text)


def test_the_skill_is_one_that_coding_agents_find() -> None:
    """The fields, and their limits, of https://agentskills.io/specification."""
    path = ROOT / ".github" / "skills" / "agent-template" / "SKILL.md"
    _, front, text = path.read_text("utf-8").split("---\n", 2)
    fields = yaml.safe_load(front)
    assert fields["name"] == path.parent.name
    assert re.fullmatch("[a-z0-9]+(-[a-z0-9]+)*", fields["name"])
    assert len(fields["description"]) <= 1024
    assert len(text.splitlines()) < 500


def test_the_texts_of_a_render_have_few_conditions() -> None:
    """A page belongs to a capability, and the folder it is in says when it is rendered."""
    paths = [
        *TEMPLATE.rglob("*.md"),
        *TEMPLATE.rglob("*.md.jinja"),
        *TEMPLATE.rglob(".env.example.jinja"),
    ]
    found = sum(len(CONDITION.findall(path.read_text("utf-8"))) for path in paths)
    assert found < 80
