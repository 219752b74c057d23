"""Knowledge bases of Bedrock as a kind of long-term memory, and their statements in the policy."""

from ..collections.check import Project
from ..collections.knowledge_base_backend import KnowledgeBaseConfig
from ..collections.models import Collection
from ..collections.reader import Document
from ..collections.secrets import Secrets
from ..findings import Finding
from .base import Memory, MemoryCollection
from .settings import MemorySettings
from .statements import ACCOUNT, Named, allow, variable


class KnowledgeBaseKind:
    """Memories in knowledge bases. The code for their calls is loaded when it is used."""

    def __init__(self, settings: MemorySettings, secrets: Secrets) -> None:
        from .knowledge_base import KnowledgeBaseClients

        self._clients, self._secrets = KnowledgeBaseClients(settings), secrets

    def open(self, collection: Collection) -> Memory:
        """Return the memory of a collection, without a call."""
        from .knowledge_base import KnowledgeBase

        backend, lifetime = collection.backend, collection.scope.lifetime
        assert isinstance(backend, KnowledgeBaseConfig)
        return KnowledgeBase(backend, lifetime, self._secrets, self._clients)

    async def check(
        self, collection: MemoryCollection, document: Document, project_id: str | None
    ) -> list[Finding]:
        """Return where a resource does not match the file. Raises MemoryUnavailable."""
        from .knowledge_base_check import check_knowledge_base

        return await check_knowledge_base(collection, document)

    @staticmethod
    def statements(project: Project, collection: Collection, arn: str) -> list[Named]:
        """Return the statements of a collection by purpose; `arn` is the start of ARNs."""
        backend = collection.backend
        assert isinstance(backend, KnowledgeBaseConfig)
        base = _resource(backend, arn)
        found: list[Named] = []
        if collection.collection_id in project.reads:
            found.append(("Recall", allow("bedrock", ["Retrieve"], base)))
        if project.is_writable(collection):
            # AWS also asks for the right to start an ingestion job.
            verbs = ["IngestKnowledgeBaseDocuments", "StartIngestionJob"]
            verbs.append("GetKnowledgeBaseDocuments")  # whether they were indexed
            found.append(("Record", allow("bedrock", verbs, base)))
        return found

    @staticmethod
    def erasure_statements(collection: Collection, arn: str) -> list[Named]:
        """Return what `forget` needs besides these, by purpose."""
        backend = collection.backend
        assert isinstance(backend, KnowledgeBaseConfig)
        verbs = ["ListKnowledgeBaseDocuments"]
        if collection.writeback.enabled:
            # AWS also asks for the right to start an ingestion job.
            verbs += ["DeleteKnowledgeBaseDocuments", "StartIngestionJob"]
        return [("Erase", allow("bedrock", verbs, _resource(backend, arn)))]


def _resource(backend: KnowledgeBaseConfig, arn: str) -> str:
    name = variable(backend.knowledge_base_id_secret or "")
    return f"{arn}:bedrock:{backend.region}:{ACCOUNT}:knowledge-base/{name}"
