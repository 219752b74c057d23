"""Count habits of translated English in texts, comments, docstrings and messages.

A habit is a word order or a clause that an editor would rewrite: "what is stored" for "the stored
data", "another one" for the noun. LIMIT keeps their number from growing.
"""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from hooks.rendering import files_of
from hooks.template import FILES, SUFFIX, Finding

# Lower it whenever the number falls; never raise it.
LIMIT = 20
PLACES = (FILES, "hooks", "README.md", "CONTRIBUTING.md")
KINDS = (".html", ".js", ".md", ".py", ".ts", ".yaml", ".yml", SUFFIX)
BEFORE_ONE = "the|that|this|each|every|another|a new|no|first|last|next|only|own|old|new"
AFTER_WHAT = "is|was|are|were|has|have|a|an|the|it|they|you|owners|callers"
HABITS = {
    "told, tells of": r"\b(?:told|tells? of)\b",
    "what is, what the": rf"(?<![?\"'`])\bwhat (?:{AFTER_WHAT})\b(?![^.!\n]*\?)",
    "pronoun one": rf"\b(?:{BEFORE_ONE}) ones?\b(?! of the (?:two|three|four))",
    "so many, so long": r"\bso (?:many|much|often|long)\b",
    "in place of, by now": r"\b(?:in place of|and no other|by now|all the same"
    r"|as it was|as they were)\b",
    "who + verb": r"(?:^|[.,;:(] )who (?:is|has|leaves|asks|calls|takes|may|can)\b",
    "there is none": r"\b(?:there (?:is|are) none|has none|have none|(?-i:is none))\b",
    "no + verb": r"(?:^|[.;:] )(?:rename|keep|move|change|name|use) no\b",
}
# Right uses: the echo model's reply, "nobody", and the number one before a noun.
ALLOWED = re.compile(
    r"I repeat what I am told|\bno one\b|\bonly one (?!that|which|who|is|was|can)[a-z]+"
    r"|(?-i:there is None)",
    re.IGNORECASE,
)
PATTERNS = {name: re.compile(pattern, re.IGNORECASE) for name, pattern in HABITS.items()}


def sources(root: Path) -> Iterator[Path]:
    """Yield the files to check, without libraries and this module."""
    for place in PLACES:
        path = root / place
        paths = [path] if path.is_file() else [path / name for name in files_of(path)]
        for file in paths:
            is_text = file.suffix in KINDS and not file.name.endswith((".min.js", ".min.js.jinja"))
            if is_text and file.name != Path(__file__).name:
                yield file


def find_habits(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line number and the name of each habit in a file."""
    for number, line in enumerate(path.read_text("utf-8", "replace").splitlines(), 1):
        text = ALLOWED.sub("", line)
        for name, pattern in PATTERNS.items():
            for _ in pattern.finditer(text):
                yield number, name


def kind_of(path: Path) -> str:
    """Return the kind of a file: its ending, without the ending of Jinja."""
    return Path(path.name.removesuffix(SUFFIX)).suffix or "other"


def list_habits(root: Path) -> Iterator[Finding]:
    """Yield all habits, each with its place."""
    for path in sources(root):
        place = path.relative_to(root).as_posix()
        for number, name in find_habits(path):
            yield Finding("habit", place, number, name)


def count_habits(root: Path) -> Counter[str]:
    """Return the number of habits by kind of file."""
    return Counter(kind_of(Path(habit.file)) for habit in list_habits(root))


def describe(counts: Counter[str]) -> str:
    """Return the numbers as a line of the report."""
    kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(counts.items()))
    return f"{counts.total()} ({kinds})" if kinds else "0"


def check_habits(counts: Counter[str]) -> Iterator[Finding]:
    """Report more habits than LIMIT."""
    if counts.total() > LIMIT:
        message = (
            f"has {describe(counts)} habits of translated English; at most {LIMIT} are allowed:"
            " list them by python -m hooks habits, and rewrite yours"
        )
        yield Finding("habits", FILES, None, message)
