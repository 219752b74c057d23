"""Conversations: the library answers, and findings are remembered."""

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from app.main import cli

PROJECT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def declared(apart: Path) -> None:
    """Give each test the library and the memory of this project, in a folder of its own."""
    for kind in ("agents", "collections", "iam"):
        shutil.rmtree(apart / kind)
        shutil.copytree(PROJECT / kind, apart / kind)
    shutil.copy(PROJECT / ".mcp.json", apart)


def chat(*prompts: str) -> str:
    typed = "".join(f"{prompt}\n" for prompt in prompts)
    return CliRunner().invoke(cli, ["chat", "--actor", "ada"], input=typed).stdout


def test_the_library_is_searched_and_read() -> None:
    said = chat("use search_notes: solar panels in winter", "use read_note: solar-panels")
    found, read = said.split("The tool answered: ")[1:]
    assert found.startswith("solar-panels: Solar panels")
    assert "do not heat the house in January" in read


def test_a_note_that_does_not_exist_is_an_error_that_names_those_that_do() -> None:
    assert "There are: heat-pumps, insulation, solar-panels" in chat("use read_note: ../agent")


def test_a_finding_is_remembered_in_a_later_session() -> None:
    kept = '{"finding": "A flow of 50 degrees is enough.", "note": "heat-pumps"}'
    assert "is kept" in chat(f"use keep_finding: {kept}")
    assert "50 degrees is enough. (from the note heat-pumps)" in chat("Is 50 degrees enough?")
