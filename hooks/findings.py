"""What the checks report."""

from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Finding:
    """One thing to mend: a stable id, where it is, and what to do about it."""

    id: str
    file: str
    line: int | None
    message: str

    def __str__(self) -> str:
        """The line that is shown."""
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{self.id} {place} {self.message}"
