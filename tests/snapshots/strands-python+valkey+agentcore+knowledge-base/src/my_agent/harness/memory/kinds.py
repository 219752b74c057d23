"""The kinds of long-term memory that this project has code for."""

from typing import Protocol

from ..collections.check import Project
from ..collections.models import Collection
from ..collections.reader import Document
from ..collections.secrets import Secrets
from ..findings import Finding
from .agentcore_kind import AgentCoreKind
from .base import Memory, MemoryCollection
from .knowledge_base_kind import KnowledgeBaseKind
from .settings import MemorySettings
from .statements import Named


class Kind(Protocol):
    """A kind of long-term memory, whose memories share their clients."""

    def __init__(self, settings: MemorySettings, secrets: Secrets) -> None: ...

    @staticmethod
    def statements(project: Project, collection: Collection, arn: str) -> list[Named]:
        """Return what the IAM policy allows, by purpose; `arn` is the start of ARNs."""

    @staticmethod
    def erasure_statements(collection: Collection, arn: str) -> list[Named]:
        """Return what `forget` needs besides these, by purpose."""

    def open(self, collection: Collection) -> Memory:
        """Return the memory of a collection, without a call."""

    async def check(
        self, collection: MemoryCollection, document: Document, project_id: str | None
    ) -> list[Finding]:
        """Return where a resource does not match the file. Raises MemoryUnavailable."""


# By the type of the backend.
KINDS: dict[str, type[Kind]] = {
    "agentcore_memory": AgentCoreKind,
    "knowledge_base": KnowledgeBaseKind,
}
