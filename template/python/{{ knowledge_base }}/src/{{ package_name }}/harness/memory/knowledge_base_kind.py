"""Bedrock knowledge bases as a kind of long-term memory, and their IAM statements."""

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
    """Memories in knowledge bases. Their module is imported on first use."""

    def __init__(self, settings: MemorySettings, secrets: Secrets) -> None:
        from .knowledge_base import KnowledgeBaseClients

        self._clients = KnowledgeBaseClients(settings)
        self._secrets = secrets

    def open(self, collection: Collection) -> Memory:
        """Return the memory of a collection, without network calls."""
        from .knowledge_base import KnowledgeBase

        backend = collection.backend
        lifetime = collection.scope.lifetime
        assert isinstance(backend, KnowledgeBaseConfig)
        return KnowledgeBase(backend, lifetime, self._secrets, self._clients)

    async def check(
        self, collection: MemoryCollection, document: Document, project_id: str | None
    ) -> list[Finding]:
        """Return differences between a resource and its file. Raises MemoryUnavailable."""
        from .knowledge_base_check import check_knowledge_base

        return await check_knowledge_base(collection, document)

    @staticmethod
    def statements(project: Project, collection: Collection, arn: str) -> list[Named]:
        """Return the IAM statements of a collection, by purpose; `arn` is the prefix of ARNs."""
        backend = collection.backend
        assert isinstance(backend, KnowledgeBaseConfig)
        base = _resource(backend, arn)
        statements: list[Named] = []
        if collection.collection_id in project.reads:
            statements.append(("Recall", allow("bedrock", ["Retrieve"], base)))
        if project.is_writable(collection):
            # AWS also requires permission to start an ingestion job.
            verbs = ["IngestKnowledgeBaseDocuments", "StartIngestionJob"]
            verbs.append("GetKnowledgeBaseDocuments")  # for the status of documents
            statements.append(("Record", allow("bedrock", verbs, base)))
        return statements

    @staticmethod
    def erasure_statements(collection: Collection, arn: str) -> list[Named]:
        """Return the additional IAM statements of an erasure, by purpose."""
        backend = collection.backend
        assert isinstance(backend, KnowledgeBaseConfig)
        verbs = ["ListKnowledgeBaseDocuments"]
        if collection.writeback.enabled:
            # AWS also requires permission to start an ingestion job.
            verbs += ["DeleteKnowledgeBaseDocuments", "StartIngestionJob"]
        return [("Erase", allow("bedrock", verbs, _resource(backend, arn)))]


def _resource(backend: KnowledgeBaseConfig, arn: str) -> str:
    name = variable(backend.knowledge_base_id_secret or "")
    return f"{arn}:bedrock:{backend.region}:{ACCOUNT}:knowledge-base/{name}"
