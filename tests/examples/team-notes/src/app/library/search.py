"""Finds notes by the words of a query. A search engine of yours can take its place."""

import re
from pathlib import Path

NOTES = Path(__file__).parent / "notes"
COMMON = {"a", "an", "and", "are", "do", "for", "how", "in", "is", "of", "the", "to", "what"}


def read_notes(folder: Path = NOTES) -> dict[str, str]:
    """Return the notes of a folder by name, which is that of the file without `.md`."""
    return {path.stem: path.read_text("utf-8") for path in sorted(folder.glob("*.md"))}


def search(notes: dict[str, str], query: str, limit: int = 3) -> list[str]:
    """Return the names of the notes that have most of the words of a query, best first."""
    wanted = _words(query)
    scores = {name: len(wanted & _words(f"{name} {text}")) for name, text in notes.items()}
    found = [name for name in notes if scores[name]]
    return sorted(found, key=lambda name: -scores[name])[:limit]


def _words(text: str) -> set[str]:
    """Return the words of a text that say something, without the s of a plural."""
    words = set(re.findall(r"\w+", text.casefold())) - COMMON
    return {word.removesuffix("s") if len(word) > 3 else word for word in words}
