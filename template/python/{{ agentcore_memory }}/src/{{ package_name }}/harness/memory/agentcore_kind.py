"""AgentCore Memory as a kind of long-term memory, and its IAM statements."""

from ..collections.agentcore_backend import AgentCoreConfig
from ..collections.check import Project
from ..collections.models import Collection
from ..collections.reader import Document
from ..collections.secrets import Secrets
from ..findings import Finding
from .base import Memory, MemoryCollection
from .namespaces import PLACEHOLDER, Namespace
from .settings import MemorySettings
from .statements import ACCOUNT, Named, allow, variable
from .strategies import are_whole


class AgentCoreKind:
    """Memories in AgentCore Memory. SDK modules are imported on first use."""

    def __init__(self, settings: MemorySettings, secrets: Secrets) -> None:
        from .agentcore_search import AgentCoreClients

        self._clients = AgentCoreClients(settings)
        self._secrets = secrets

    def open(self, collection: Collection) -> Memory:
        """Return the memory of a collection, without network calls."""
        from .agentcore_search import AgentCoreMemory

        assert isinstance(collection.backend, AgentCoreConfig)
        return AgentCoreMemory(collection.backend, self._secrets, self._clients)

    async def check(
        self, collection: MemoryCollection, document: Document, project_id: str | None
    ) -> list[Finding]:
        """Return differences between a resource and its file. Raises MemoryUnavailable."""
        from .agentcore_check import check_agentcore

        return await check_agentcore(collection, document, project_id)

    @staticmethod
    def statements(project: Project, collection: Collection, arn: str) -> list[Named]:
        """Return the IAM statements of a collection, by purpose; `arn` is the prefix of ARNs."""
        backend = collection.backend
        assert isinstance(backend, AgentCoreConfig)
        memory = _resource(backend, arn)
        statements = _recall(memory, backend) if collection.collection_id in project.reads else []
        if project.is_writable(collection):
            statements.append(("Record", allow("bedrock-agentcore", ["CreateEvent"], memory)))
        return statements

    @staticmethod
    def erasure_statements(collection: Collection, arn: str) -> list[Named]:
        """Return the additional IAM statements of an erasure, by purpose."""
        backend = collection.backend
        assert isinstance(backend, AgentCoreConfig)
        verbs = ["GetMemory", "ListActors", "ListSessions", "ListEvents", "ListMemoryRecords"]
        if collection.writeback.enabled:
            verbs += ["DeleteEvent", "BatchDeleteMemoryRecords"]
        return [("Erase", allow("bedrock-agentcore", verbs, _resource(backend, arn)))]


def _resource(backend: AgentCoreConfig, arn: str) -> str:
    name = variable(backend.memory_id_secret or "")
    return f"{arn}:bedrock-agentcore:{backend.region}:{ACCOUNT}:memory/{name}"


def _recall(memory: str, backend: AgentCoreConfig) -> list[Named]:
    recall = allow("bedrock-agentcore", ["RetrieveMemoryRecords"], memory)
    statements: list[Named] = []
    if not are_whole(backend.retrieval_config):  # the resource lists its strategies
        statements.append(("Describe", allow("bedrock-agentcore", ["GetMemory"], memory)))
    if backend.retrieval_config is None:
        return [*statements, ("Recall", recall)]
    for purpose, is_subtree in (("Recall", False), ("RecallBelow", True)):
        keys = [key for key in backend.retrieval_config if key.endswith("/*") is is_subtree]
        paths = {f"/{PLACEHOLDER.sub('*', key.removesuffix('/*')).strip('/')}/" for key in keys}
        (name,) = Namespace("", is_subtree).parameter  # each parameter has its own condition key
        condition = {"StringLike": {f"bedrock-agentcore:{name}": sorted(paths)}}
        statements += [(purpose, recall | {"Condition": condition})] if paths else []
    return statements
