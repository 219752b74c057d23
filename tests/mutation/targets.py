"""The table of targets: which faults a render's own tests must find, and how they are run.

A render shares a list with the other one in its language, and brings one for its own `turn`.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from tests.installed import NODE
from tests.mutation import (
    compaction_python,
    compaction_typescript,
    python,
    strands_python,
    strands_typescript,
    transactions_python,
    transactions_typescript,
    typescript,
    vercel_python,
    vercel_typescript,
)
from tests.mutation.fault import Fault
from tests.stateful.machines import VARIANT, arrange


@dataclass(frozen=True)
class Target:
    """How to run the tests of a copy of an installed render, which shares its dependencies.

    `command` and `variables` are made of the installed render and of the copy.
    """

    variant: str
    copied: tuple[str, ...]
    command: Callable[[Path, Path], list[str]]
    variables: Callable[[Path], dict[str, str]]
    failed: int  # the exit code that says: the tests ran, and one failed
    own: list[Fault]
    shared: list[Fault]  # with the other target of its language

    @property
    def faults(self) -> list[Fault]:
        """All faults that the tests of the render must find."""
        return self.own + self.shared


def pytest_of(project: Path, _: Path) -> list[str]:
    """The render's pytest, which stops at the first failure and leaves no files."""
    python = str(project / ".venv" / "bin" / "python")
    return [python, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]


def own_modules_first(copy: Path) -> dict[str, str]:
    """The package `app` is the copy's, not that of the render that is installed."""
    return {"PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1"}


def node_test_of(_project: Path, _copy: Path) -> list[str]:
    """Node's tests, which stop at the first failure."""
    reporter = Path(__file__).with_name("first_failure.mjs").as_uri()
    # In one process, so that nothing is left of them.
    return [str(NODE), "--test", "--test-isolation=none", f"--test-reporter={reporter}"]


def nothing_more(_: Path) -> dict[str, str]:
    """Modules are found beside the tests."""
    return {}


def first_failure_of(_: Path) -> dict[str, str]:
    """Random schedules, as many as find each of these faults, up to the first that fails."""
    return {"SCHEDULES": "1000", "FIRST_FAILURE": "1"}


def schedules_target(target: str, own: list[Fault], shared: list[Fault]) -> Target:
    """A render whose tests are random schedules of turns: see tests/stateful."""
    failed = 1 if target.endswith("-python") else 3
    command = partial(arrange, target)
    return Target(target + VARIANT, (), command, first_failure_of, failed, own, shared)


def compaction_target(base: Target, faults: list[Fault]) -> Target:
    """A render with compaction, of whose own tests those of the room are run."""
    name = "test_compaction.py" if base.failed == 1 else "compaction.test.ts"
    test = f"tests/harness/{name}"

    def command(project: Path, copy: Path) -> list[str]:
        return [*base.command(project, copy), test]

    return replace(
        base, variant=f"{base.variant}+compaction", command=command, own=faults, shared=[]
    )


def python_target(variant: str, own: list[Fault]) -> Target:
    """A render in Python."""
    copied = ("src", "tests", "pyproject.toml")
    return Target(variant, copied, pytest_of, own_modules_first, 1, own, python.FAULTS)


def typescript_target(variant: str, own: list[Fault]) -> Target:
    """A render in TypeScript."""
    copied = ("src", "tests", "package.json", "node_modules")
    return Target(variant, copied, node_test_of, nothing_more, 3, own, typescript.FAULTS)


TARGETS = {
    "strands-python": python_target("strands-python", strands_python.FAULTS),
    "vercel-python": python_target("vercel-python", vercel_python.FAULTS),
    "strands-typescript": typescript_target("strands-typescript", strands_typescript.FAULTS),
    "vercel-typescript": typescript_target("vercel-typescript", vercel_typescript.FAULTS),
    **{
        target + VARIANT: schedules_target(target, own, module.FAULTS)
        for target, own, module in (
            ("strands-python", transactions_python.STRANDS, transactions_python),
            ("vercel-python", transactions_python.VERCEL, transactions_python),
            ("strands-typescript", transactions_typescript.STRANDS, transactions_typescript),
            ("vercel-typescript", transactions_typescript.VERCEL, transactions_typescript),
        )
    },
}

for name, faults in (
    ("strands-python", compaction_python.FAULTS),
    ("strands-typescript", compaction_typescript.FAULTS),
):
    TARGETS[f"{name}+compaction"] = compaction_target(TARGETS[name], faults)
