"""The kinds of long-term memory that this project supports."""

from typing import Protocol

from ..collections.check import Project
from ..collections.models import Collection
from ..collections.reader import Document
from ..collections.secrets import Secrets
from ..findings import Finding
from .base import Memory, MemoryCollection
from .knowledge_base_kind import KnowledgeBaseKind
from .settings import MemorySettings
from .statements import Named


class Kind(Protocol):
    """A kind of long-term memory; its memories share clients."""

    def __init__(self, settings: MemorySettings, secrets: Secrets) -> None: ...

    @staticmethod
    def statements(project: Project, collection: Collection, arn: str) -> list[Named]:
        """Return the IAM statements of a collection, by purpose; `arn` is the prefix of ARNs."""

    @staticmethod
    def erasure_statements(collection: Collection, arn: str) -> list[Named]:
        """Return the additional IAM statements of an erasure, by purpose."""

    def open(self, collection: Collection) -> Memory:
        """Return the memory of a collection, without network calls."""

    async def check(
        self, collection: MemoryCollection, document: Document, project_id: str | None
    ) -> list[Finding]:
        """Return differences between a resource and its file. Raises MemoryUnavailable."""


# By the type of the backend.
KINDS: dict[str, type[Kind]] = {
    "knowledge_base": KnowledgeBaseKind,
}
