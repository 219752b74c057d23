"""The collection fields that all kinds of long-term memory share."""

import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from .fields import INTEGRAL, Strict
from .reader import Document, FieldPath, Findings

NAMESPACE = re.compile("(?=.{1,512}$)/?[A-Za-z0-9_{}-]+(/[A-Za-z0-9_{}-]+)*(/[*]?)?")
PLACEHOLDERS = ("{actorId}", "{projectId}", "{sessionId}")
# {actorId}-{sessionId} is ambiguous: actor a-b with session c equals actor a with session b-c.
AMBIGUOUS = re.compile(r"\{actorId\}[^/{]*\{|\}[^/{}]*\{actorId\}")
MAX_RECORDS = 100
MAX_KEYS = 15  # per event
MAX_FILTERS = 5  # per search
KEY = re.compile(r"[a-zA-Z0-9\s.:/=+@-][a-zA-Z0-9\s._:/=+@-]{0,127}", re.ASCII)
VALUE = re.compile(r"[a-zA-Z0-9\s._:/=+@-]{0,256}", re.ASCII)
CHARS = "of A-Z a-z 0-9, spaces and . _ : / = + @ -"


class NamespaceConfig(Strict):
    top_k: Annotated[int, INTEGRAL, Field(ge=1, le=1000)] = 10
    relevance_score: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = 0.2
    metadata: dict[str, Any] = Field(default_factory=dict)


RetrievalConfig = Annotated[dict[str, NamespaceConfig], Field(min_length=1)]


def metadata_problem(metadata: Mapping[str, Any], limit: int = MAX_KEYS) -> str:
    """Return the rule of AgentCore that a text's metadata breaks, or ""."""
    if len(metadata) > limit:
        return f"it has {len(metadata)} keys; at most {limit} are allowed"
    for key, value in metadata.items():
        if not KEY.fullmatch(key):
            return f"key {key} must be 1 to 128 {CHARS} and not begin with _"
        if not isinstance(value, str) or not VALUE.fullmatch(value):
            return f"the value of {key} must be up to 256 {CHARS}"
    return ""


def filter_problem(metadata: Mapping[str, Any]) -> str:
    """Return the rule that the metadata of a search breaks, or ""."""
    for key, value in metadata.items():
        if value == "":
            return f"the value of {key} is empty; a search needs a value"
    return metadata_problem(metadata, MAX_FILTERS)


def check_retrieval(
    document: Document,
    retrieval_config: RetrievalConfig | None,
    lifetime: str,
    placeholders: tuple[str, ...] = PLACEHOLDERS,
) -> Findings:
    """Check the namespaces of a collection; `placeholders` are the allowed placeholders."""
    for namespace, config in (retrieval_config or {}).items():
        path = ("backend", "retrieval_config", namespace)
        yield from _check_namespace(document, path, namespace, lifetime, placeholders)
        if config.top_k > MAX_RECORDS:
            message = f"top_k {config.top_k} is reduced to the service's maximum, {MAX_RECORDS}."
            yield document.finding("AML-W220", message, *path, "top_k")
        if problem := filter_problem(config.metadata):
            yield document.finding("AML-E05C", f"Metadata: {problem}.", *path, "metadata")


def _check_namespace(
    document: Document,
    path: FieldPath,
    namespace: str,
    lifetime: str,
    placeholders: tuple[str, ...],
) -> Findings:
    if not NAMESPACE.fullmatch(namespace):
        message = f"Namespace {namespace} must consist of segments of A-Z a-z 0-9 _ - "
        message += "between slashes, and may end in /*."
        yield document.finding("AML-E052", message, *path)
    elif re.search("[{}]", re.sub("|".join(map(re.escape, placeholders)), "", namespace)):
        names = f"{', '.join(placeholders[:-1])} and {placeholders[-1]}"
        message = f"Only {names} are placeholders of a namespace."
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
