"""The backends of collections: those that this project supports, and the others."""

from typing import Literal

from .agentcore_backend import AgentCoreConfig
from .fields import Extensible, SecretRef
from .knowledge_base_backend import KnowledgeBaseConfig
from .reader import Document, Findings
from .session_backend import ValkeyConfig


class OtherConfig(Extensible):
    """A backend of a type that this project does not support. Its other fields are ignored."""

    type: Literal["s3", "custom"]

    def secret_refs(self) -> list[SecretRef]:
        """Return no references: an agent that uses the collection does not start."""
        return []

    def findings(self, document: Document, status: str, lifetime: str) -> Findings:
        """Yield nothing."""
        yield from ()


BackendConfig = ValkeyConfig | AgentCoreConfig | KnowledgeBaseConfig | OtherConfig
# The template answers that add the code of a type, if they differ from its name.
ANSWERS = {
    "agentcore_memory": "long_term_memory=agentcore-and-knowledge-base",
    "knowledge_base": "long_term_memory=agentcore-and-knowledge-base",
}
