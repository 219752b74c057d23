"""The front matter of a Markdown file: what stands between its first line, ---, and the next."""

import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .broken import broken
from .unsafe import unsafe
from .yaml_core import LEVELS, Reader, Where, Wrong

BYTES = 100_000


@dataclass
class Document:
    """What a file says, where in it, and in which words; `data` is None where `wrong` says why."""

    file: str
    data: dict[str, Any] | None = None
    wrong: list[Wrong] = field(default_factory=list)
    lines: dict[Where, int] = field(default_factory=dict)
    texts: dict[Where, str] = field(default_factory=dict)
    invalid: set[Where] = field(default_factory=set)  # what a finding already says is no value

    def line(self, where: Where) -> int:
        """The line of a key or of an item of a list; of what it would stand in where absent."""
        while where and where not in self.lines:
            where = where[:-1]
        return self.lines.get(where, 1)

    def get(self, *where: str | int) -> Any:
        """The value there, or None where there is none, or none that is valid."""
        value: Any = self.data
        for depth, step in enumerate(where, 1):
            if value is None or where[:depth] in self.invalid:
                return None
            if isinstance(value, dict):
                value = value.get(step)
            else:
                value = value[step] if isinstance(value, list) and isinstance(step, int) else None
        return value

    def has(self, *where: str) -> bool:
        """Whether a mapping that is there lacks nothing in this place, however invalid."""
        *above, key = where
        return key in (self.get(*above) or {})


def read(path: Path, file: str) -> Document:
    """The front matter of the file at `path`, which findings call `file`. Never raises."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise OSError
        with path.open("rb") as stream:
            return parse(stream.read(BYTES + 1), file)
    except OSError:
        return Document(file, wrong=[("AML-E00E", 0, {})])


def parse(content: bytes, file: str) -> Document:
    """The front matter of a file with this content. Never raises."""
    if len(content) > BYTES:
        return _refused(file, "AML-E00C", limit=BYTES)
    try:
        text = content.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError:
        return _refused(file, "AML-E00B")
    first, *rest = [line if line[:3] != "---" else line.rstrip(" \t") for line in text.split("\n")]
    if first != "---":
        return _refused(file, "AML-E001")
    if "---" not in rest:
        return _refused(file, "AML-E0D8")
    inner = "\n".join(rest[: rest.index("---")]) + "\n"
    if wrong := unsafe(inner):
        return Document(file, wrong=[wrong])
    try:
        reader = Reader(inner)
        data = reader.read()
    except RecursionError:
        return _refused(file, "AML-E00D", limit=LEVELS)
    except Exception:  # noqa: BLE001 (of whatever type the parser raises for a text)
        return Document(file, wrong=[broken(inner)])
    if reader.wrong:
        return Document(file, wrong=reader.wrong)
    if not isinstance(data, dict):
        return _refused(file, "AML-E005")
    return Document(file, data, lines=reader.lines, texts=reader.texts)


def _refused(file: str, id: str, **names: Any) -> Document:
    return Document(file, wrong=[(id, 1, names)])
