"""The application: the project's own modules and the enabled capabilities."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Protocol, cast

from .capability import Capability
from .enabled import Settings, load_kinds
from .findings import Finding, refuse_errors
from .modules import LoadModules
from .project import Project
from .settings import CoreSettings


class OwnModule(Protocol):
    """The module `own_capabilities`."""

    @property
    def OwnSettings(self) -> type[CoreSettings]:
        """The project's own settings."""

    @property
    def OWN_CAPABILITIES(self) -> Sequence[type[Capability]]:
        """The project's own capabilities."""


class AgentApp:
    """An agent composed of your modules and the harness.

    `load` imports the modules that need a framework; commands without turns do not call it.
    `folder` contains your modules.
    """

    def __init__(self, load: LoadModules, *, own: OwnModule, folder: Path) -> None:
        Project.package = folder
        self.load = cache(load)
        self.own = own

    @cached_property
    def settings_class(self) -> type[Settings]:
        """The settings of the core, of the capabilities and of the project."""
        kind = type("Settings", (self.own.OwnSettings, Settings), {})
        return cast("type[Settings]", dataclass(frozen=True)(kind))

    def read_settings(self) -> tuple[Settings, list[Finding]]:
        """Read the environment and .env; return settings and findings."""
        return self.settings_class.read()

    def make_capabilities(self, settings: Settings) -> list[Capability]:
        """Return the capabilities; the project's own come last."""
        capabilities: list[Capability] = []
        for kind in [*load_kinds(), *self.own.OWN_CAPABILITIES]:
            capabilities.append(kind(settings, [*capabilities], self.load))
        return capabilities

    def load_capabilities(self) -> list[Capability]:
        """Return the capabilities, for a command that runs no turns; refuse invalid settings."""
        settings, findings = self.read_settings()
        refuse_errors(findings)
        return self.make_capabilities(settings)
