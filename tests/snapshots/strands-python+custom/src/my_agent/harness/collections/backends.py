"""The backends of collections: those that this project supports, and the others."""

from typing import Literal

from .fields import Extensible, SecretRef
from .reader import Document, Findings
from .session_backend import CustomConfig


class OtherConfig(Extensible):
    """A backend of a type that this project does not support. Its other fields are ignored."""

    type: Literal["valkey", "s3", "agentcore_memory", "knowledge_base"]

    def secret_refs(self) -> list[SecretRef]:
        """Return no references: an agent that uses the collection does not start."""
        return []

    def findings(self, document: Document, status: str, lifetime: str) -> Findings:
        """Yield nothing."""
        yield from ()


BackendConfig = CustomConfig | OtherConfig
# The template answers that add the code of a type, if they differ from its name.
ANSWERS = {
    "agentcore_memory": "long_term_memory=agentcore",
    "knowledge_base": "long_term_memory=knowledge-base",
}
