"""What a seeded fault is: one edit of a rendered file."""

from pathlib import Path
from typing import NamedTuple


class Fault(NamedTuple):
    """A mistake that somebody could make. `name` is a sentence that says what is wrong then."""

    name: str
    file: str
    old: str
    new: str

    def applied(self, project: Path) -> str:
        """Return the file with the mistake. Raises ValueError unless `old` is there once."""
        text = (project / self.file).read_text("utf-8")
        if (count := text.count(self.old)) != 1:
            raise ValueError(f"{self.name}: its old text is {count} times in {self.file}, not once")
        return text.replace(self.old, self.new)

    def apply(self, project: Path) -> None:
        """Make the mistake in `project`. Raises ValueError unless `old` is there exactly once."""
        (project / self.file).write_text(self.applied(project), "utf-8")
