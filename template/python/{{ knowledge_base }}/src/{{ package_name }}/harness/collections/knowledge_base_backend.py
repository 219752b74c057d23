"""The collection fields of a Bedrock knowledge base."""

from typing import Annotated, ClassVar, Literal

from .fields import Reference, Region, SecretRef, Strict, matches, missing_address
from .memory_backend import RetrievalConfig, check_retrieval
from .reader import Document, Findings

ID = "[0-9a-zA-Z]{10}"
IdReference = Annotated[Reference, matches(f"(?!{ID}$).*", "a reference, not a Bedrock id")]


class KnowledgeBaseConfig(Strict):
    type: Literal["knowledge_base"]
    knowledge_base_id_secret: IdReference | None = None
    data_source_id_secret: IdReference | None = None  # type CUSTOM; required for writing
    region: Region
    search: Literal["vector", "managed"] = "vector"  # the type of the knowledge base
    extraction: Literal["model", "none"] = "model"
    retrieval_config: RetrievalConfig | None = None
    batch_size: ClassVar = 100  # extract facts from waiting turns together

    def secret_refs(self) -> list[SecretRef]:
        """Return the secrets to read before the collection is used."""
        names = ("knowledge_base_id_secret", "data_source_id_secret")
        refs = [(getattr(self, name), name) for name in names]
        return [SecretRef(ref, path=("backend", name)) for ref, name in refs if ref]

    def findings(self, document: Document, status: str, lifetime: str) -> Findings:
        """Check the rules that span several fields."""
        if self.knowledge_base_id_secret is None:
            yield from missing_address(document, "knowledge_base_id_secret", status)
        is_written = bool(document.data and document.data["writeback"]["enabled"])
        if self.data_source_id_secret is None and is_written:
            yield from missing_address(document, "data_source_id_secret", status)
        if lifetime == "session":
            message = "knowledge_base does not store lifetime session: use valkey or s3."
            yield document.finding("AML-E043", message, "backend", "type")
        if self.retrieval_config is None:
            message = "backend.retrieval_config is missing: one namespace for each "
            message += "actor applies." if lifetime == "user" else "project applies."
            yield document.finding("AML-W207", message, "backend", "retrieval_config")
        for namespace in self.retrieval_config or {}:
            if namespace.endswith("/*"):
                message = "A knowledge base matches complete namespaces only: remove /*."
                path = ("backend", "retrieval_config", namespace)
                yield document.finding("AML-E052", message, *path)
        for namespace in [*(self.retrieval_config or {})][1:] if is_written else []:
            message = f"No turns are recorded in {namespace}: turns go to the first namespace only."
            path = ("backend", "retrieval_config", namespace)
            yield document.finding("AML-W223", message, *path)
        yield from check_retrieval(document, self.retrieval_config, lifetime)
