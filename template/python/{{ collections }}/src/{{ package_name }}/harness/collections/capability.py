"""The capability that loads collection files and reads their secrets."""

from collections.abc import Collection as Names
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from ..capability import Capability, Runtime
from ..contract import AgentError
from ..findings import Finding, errors_of
from ..modules import LoadModules
from .check import Project, check_project, load_project
from .erasure import Stock, unerasable
from .secrets import SecretError, Secrets
from .settings import DeclarationSettings

UNUSED = (
    "not looked at, because the agent does not use it. Add it to the agent's file, and run this "
    "again"
)


class Declarations(Capability):
    """The agent's collections. Other capabilities connect to the backends that they declare."""

    settings: DeclarationSettings
    reads_secrets = True  # at startup; `eval` skips this

    def __init__(
        self, settings: DeclarationSettings, before: Sequence[Capability], load: LoadModules
    ) -> None:
        super().__init__(settings, before, load)
        self.agent_id = settings.agent_id
        self.secrets = Secrets(settings)
        self._baseline = settings.check_against
        self.is_valid = True  # until `check` finds an error

    @cached_property
    def project(self) -> Project:
        """The project. Raises ValueError if the agent's file is invalid."""
        return load_project(Path(), self.agent_id)

    def check(self) -> list[Finding]:
        findings = check_project(Path(), self.agent_id, self._baseline)
        self.is_valid = not errors_of(findings)
        return findings

    def project_stocks(self, unshared: Names[str]) -> list[Stock]:
        """Return the collections that the agent does not use: they may have data from before."""
        used = [collection.collection_id for collection in self.project.used()]
        unused = [id for id in self.project.collections if id not in used]
        return [unerasable(f"data of collection {id}", "its store", UNUSED) for id in unused]

    async def open(self, runtime: Runtime) -> None:
        """Read the secrets that turns need. Raises AgentError if a secret is missing."""
        if self.settings.model == "offline":
            return
        try:
            for collection in self.project.used():
                for ref in collection.backend.secret_refs():
                    await self.secrets.get(ref)
        except SecretError as error:
            raise AgentError("store_unavailable", detail=str(error)) from None
