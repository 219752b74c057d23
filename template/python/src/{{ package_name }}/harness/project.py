"""The project that the harness runs."""

from pathlib import Path


class Project:
    """The project of this process."""

    package = Path("src", "app")
    """The folder of the project's own modules; `AgentApp` sets it."""

    @classmethod
    def name_of(cls, path: Path) -> str:
        """Return a path in the package relative to the project, as in src/app/agent.py."""
        return Path("src", path.relative_to(cls.package.parent)).as_posix()
