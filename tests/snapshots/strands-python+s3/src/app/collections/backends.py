"""The backends that this project has code for, and the others that a file may name."""

from typing import Literal

from .fields import Extensible, SecretRef
from .reader import Document, Findings
from .session_backend import S3Config


class OtherConfig(Extensible):
    """A backend of a type that this project has no code for. Its other fields are not read."""

    type: Literal["valkey", "custom", "agentcore_memory"]

    def secret_refs(self) -> list[SecretRef]:
        """Return nothing: an agent that uses the collection does not start."""
        return []

    def findings(self, document: Document, status: str, lifetime: str) -> Findings:
        """Yield nothing."""
        yield from ()


BackendConfig = S3Config | OtherConfig
