"""Long-term memory in AgentCore Memory: the fields of its collection."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from .fields import INTEGRAL, Reference, Region, SecretRef, Strict, matches, missing_address
from .reader import Document, FieldPath, Findings

# The id of a memory looks like a path, and is no reference to a secret.
MemoryReference = Annotated[
    Reference,
    matches("(?![A-Za-z][A-Za-z0-9_-]{0,99}-[A-Za-z0-9]{10}$).*", "a reference, not a memory's id"),
]
NAMESPACE = re.compile("(?=.{1,512}$)/?[A-Za-z0-9_{}-]+(/[A-Za-z0-9_{}-]+)*(/[*]?)?")
PLACEHOLDER = re.compile(r"\{(?:actorId|projectId|sessionId|memoryStrategyId)\}")
# In {actorId}-{sessionId}, actor a-b with session c has the namespace of actor a with b-c.
AMBIGUOUS = re.compile(r"\{actorId\}[^/{]*\{|\}[^/{}]*\{actorId\}")
MAX_RECORDS = 100
MAX_KEYS, MAX_FILTERS = 15, 5  # of an event, and of a search
KEY = re.compile(r"[a-zA-Z0-9\s.:/=+@-][a-zA-Z0-9\s._:/=+@-]{0,127}", re.ASCII)
VALUE = re.compile(r"[a-zA-Z0-9\s._:/=+@-]{0,256}", re.ASCII)
CHARS = "of A-Z a-z 0-9, spaces and . _ : / = + @ -"


class NamespaceConfig(Strict):
    top_k: Annotated[int, INTEGRAL, Field(ge=1, le=1000)] = 10
    relevance_score: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = 0.2
    metadata: dict[str, Any] = Field(default_factory=dict)


class AgentCoreConfig(Strict):
    type: Literal["agentcore_memory"]
    memory_id_secret: MemoryReference | None = None
    region: Region
    retrieval_config: Annotated[dict[str, NamespaceConfig], Field(min_length=1)] | None = None
    batch_size: Annotated[int, INTEGRAL, Field(ge=1, le=100)] = 1

    def secret_refs(self) -> list[SecretRef]:
        """Return the references that are read before the collection is used."""
        reference, path = self.memory_id_secret, ("backend", "memory_id_secret")
        return [SecretRef(reference, path=path)] if reference else []

    def findings(self, document: Document, status: str, lifetime: str) -> Findings:
        """Check what concerns more than one field."""
        if self.memory_id_secret is None:
            yield from missing_address(document, "memory_id_secret", status)
        if lifetime == "session":
            message = "agentcore_memory does not store lifetime session: use valkey or s3."
            yield document.finding("AML-E043", message, "backend", "type")
        if self.batch_size > 1:
            message = f"With batch_size {self.batch_size}, a killed process loses unsent messages."
            yield document.finding("AML-W225", message, "backend", "batch_size")
        if self.retrieval_config is None:
            message = "backend.retrieval_config is missing: the memory's own namespaces apply."
            yield document.finding("AML-W207", message, "backend", "retrieval_config")
        for namespace, config in (self.retrieval_config or {}).items():
            path = ("backend", "retrieval_config", namespace)
            yield from _namespace(document, path, namespace, lifetime)
            if config.top_k > MAX_RECORDS:
                message = f"top_k {config.top_k} is reduced to AgentCore's maximum, {MAX_RECORDS}."
                yield document.finding("AML-W220", message, *path, "top_k")
            if problem := metadata_problem(config.metadata, MAX_FILTERS):
                yield document.finding("AML-E05C", f"Metadata: {problem}.", *path, "metadata")


def metadata_problem(metadata: Mapping[str, Any], most: int = MAX_KEYS) -> str:
    """Return which rule of AgentCore metadata breaks, or ""."""
    if len(metadata) > most:
        return f"it has {len(metadata)} keys, {most} are allowed"
    for key, value in metadata.items():
        if not KEY.fullmatch(key):
            return f"key {key} must be 1 to 128 {CHARS}, and not begin with _"
        if not isinstance(value, str) or not VALUE.fullmatch(value):
            return f"the value of {key} must be up to 256 {CHARS}"
    return ""


def _namespace(document: Document, path: FieldPath, namespace: str, lifetime: str) -> Findings:
    if not NAMESPACE.fullmatch(namespace):
        message = f"Namespace {namespace} must consist of parts of A-Z a-z 0-9 _ - "
        message += "between slashes, and may end in /*."
        yield document.finding("AML-E052", message, *path)
    elif re.search("[{}]", PLACEHOLDER.sub("", namespace)):
        message = "Only {actorId}, {projectId}, {sessionId} and {memoryStrategyId} "
        message += "are placeholders of a namespace."
        yield document.finding("AML-E053", message, *path)
    elif AMBIGUOUS.search(namespace):
        message = "A slash must separate {actorId} from the next placeholder: "
        message += "otherwise two actors can share a namespace."
        yield document.finding("AML-E05B", message, *path)
    elif lifetime == "project":
        if "{actorId}" in namespace:
            message = "{actorId} belongs to lifetime user, and this collection has lifetime "
            yield document.finding("AML-W221", f"{message}{lifetime}.", *path)
        if "{projectId}" not in namespace:
            message = "All projects share this namespace: add {projectId}."
            yield document.finding("AML-W228", message, *path)
    elif lifetime == "user":
        if "{projectId}" in namespace:
            message = "{projectId} belongs to lifetime project, and this collection has lifetime "
            yield document.finding("AML-W221", f"{message}{lifetime}.", *path)
        if "{actorId}" not in namespace:
            message = "All users share this namespace: add {actorId}."
            yield document.finding("AML-E231", message, *path)
