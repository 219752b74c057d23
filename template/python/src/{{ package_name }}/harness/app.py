"""The agent as a whole: the owner's modules and the capabilities of the answers."""

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
        """The settings of the owner."""

    @property
    def OWN_CAPABILITIES(self) -> Sequence[type[Capability]]:
        """The capabilities of the owner."""


class AgentApp:
    """An agent: your modules, and what the harness makes of them.

    `load` imports the modules that need a framework: commands that run no turn do not call it.
    `folder` has your modules.
    """

    def __init__(self, load: LoadModules, *, own: OwnModule, folder: Path) -> None:
        Project.package = folder
        self.load = cache(load)
        self.own = own

    @cached_property
    def settings_class(self) -> type[Settings]:
        """The settings of the core, of the capabilities and of the owner."""
        kind = type("Settings", (self.own.OwnSettings, Settings), {})
        return cast("type[Settings]", dataclass(frozen=True)(kind))

    def read_settings(self) -> tuple[Settings, list[Finding]]:
        """Read the environment and .env; return settings and findings."""
        return self.settings_class.read()

    def make_capabilities(self, settings: Settings) -> list[Capability]:
        """Return the capabilities, the owner's last."""
        capabilities: list[Capability] = []
        for kind in [*load_kinds(), *self.own.OWN_CAPABILITIES]:
            capabilities.append(kind(settings, [*capabilities], self.load))
        return capabilities

    def load_capabilities(self) -> list[Capability]:
        """Return the capabilities, for commands that run no turn; refuse errors in the settings."""
        settings, findings = self.read_settings()
        refuse_errors(findings)
        return self.make_capabilities(settings)
