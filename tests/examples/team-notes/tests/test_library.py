"""The search in notes without an agent."""

from pathlib import Path

from app.library.search import read_notes, search


def test_the_note_with_most_words_of_the_query_is_first() -> None:
    assert search(read_notes(), "insulating the roof and the cellar")[0] == "insulation"
    assert search(read_notes(), "the bicycle") == []


def test_notes_are_the_markdown_files_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "wood-stoves.md").write_text("# Wood stoves\n", "utf-8")
    (tmp_path / "draft.txt").write_text("No note.", "utf-8")
    assert read_notes(tmp_path) == {"wood-stoves": "# Wood stoves\n"}
