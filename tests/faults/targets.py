"""The table of targets: which faults a render's own tests must find, and how they are run.

A new render adds a row. A render in Python shares `python.FAULTS` and brings a list for its own
`turn`; one in another language brings lists with texts of its own.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.faults import python, strands_python, vercel_python
from tests.faults.fault import Fault


@dataclass(frozen=True)
class Target:
    """How to run the tests of a copy of an installed render, which shares its dependencies.

    `command` and `variables` are made of the installed render and of the copy.
    """

    variant: str
    copied: tuple[str, ...]
    command: Callable[[Path], list[str]]
    variables: Callable[[Path], dict[str, str]]
    failed: int  # the exit code that says: the tests ran, and one failed
    faults: list[Fault]


def pytest_of(project: Path) -> list[str]:
    """The render's pytest, which stops at the first failure and leaves no files."""
    python = str(project / ".venv" / "bin" / "python")
    return [python, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]


def own_modules_first(copy: Path) -> dict[str, str]:
    """The package `app` is the copy's, not that of the render that is installed."""
    return {"PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1"}


def python_target(variant: str, own: list[Fault]) -> Target:
    """A render in Python."""
    copied = ("src", "tests", "pyproject.toml")
    return Target(variant, copied, pytest_of, own_modules_first, 1, own + python.FAULTS)


TARGETS = {
    "strands-python": python_target("strands-python", strands_python.FAULTS),
    "vercel-python": python_target("vercel-python", vercel_python.FAULTS),
}
