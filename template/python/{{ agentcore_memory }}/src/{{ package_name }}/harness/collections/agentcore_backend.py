"""The collection fields of AgentCore Memory."""

from typing import Annotated, Literal

from pydantic import Field

from .fields import INTEGRAL, Reference, Region, SecretRef, Strict, matches, missing_address
from .memory_backend import PLACEHOLDERS, RetrievalConfig, check_retrieval
from .reader import Document, Findings

# A memory's id looks like a path, but is not a reference to a secret. AWS appends ten random
# letters and digits to its name; a word of ten lower-case letters, such as "identifier", is not
# random.
MEMORY_ID = "[A-Za-z][A-Za-z0-9_-]{0,99}-(?=[a-z]*[A-Z0-9])[A-Za-z0-9]{10}$"
MemoryReference = Annotated[
    Reference,
    matches(f"(?!{MEMORY_ID}).*", "a reference, not a memory's id"),
]


class AgentCoreConfig(Strict):
    type: Literal["agentcore_memory"]
    memory_id_secret: MemoryReference | None = None
    region: Region
    retrieval_config: RetrievalConfig | None = None
    batch_size: Annotated[int, INTEGRAL, Field(ge=1, le=100)] = 1

    def secret_refs(self) -> list[SecretRef]:
        """Return the secrets to read before the collection is used."""
        reference = self.memory_id_secret
        path = ("backend", "memory_id_secret")
        return [SecretRef(reference, path=path)] if reference else []

    def findings(self, document: Document, status: str, lifetime: str) -> Findings:
        """Check the rules that span several fields."""
        if self.memory_id_secret is None:
            yield from missing_address(document, "memory_id_secret", status)
        if lifetime == "session":
            message = "agentcore_memory does not store lifetime session: use valkey or s3."
            yield document.finding("AML-E043", message, "backend", "type")
        if self.retrieval_config is None:
            message = "backend.retrieval_config is missing: the memory's own namespaces apply."
            yield document.finding("AML-W207", message, "backend", "retrieval_config")
        placeholders = (*PLACEHOLDERS, "{memoryStrategyId}")
        yield from check_retrieval(document, self.retrieval_config, lifetime, placeholders)
