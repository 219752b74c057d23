"""What is wrong in a collection beyond single fields: what does not fit together, or is unwise.

What `models` says is no valid value is not looked at again.
"""

import re
from collections.abc import Iterator
from typing import Any

from ..contract import is_blank
from .frontmatter import Document
from .lint_access import lint_transport
from .rules import at

Findings = Iterator[dict[str, Any]]
NEEDED = {
    "agentcore_memory": ("1", "memory_id_secret"),
    "valkey": ("2", "endpoint_secret"),
    "s3": ("3", "bucket_secret"),
    "custom": ("4", "transport"),
}
LIFE = {"valkey": "ttl_seconds", "s3": "ttl_days"}
NAMESPACE = re.compile("(?=.{1,512}$)/?[A-Za-z0-9_{}-]+(/[A-Za-z0-9_{}-]+)*(/[*]?)?")
# People could meet: a-b and c are an actor and a session, and so are a and b-c.
BESIDE = re.compile(r"\{actorId\}[^/]*\{|\}[^/]*\{actorId\}")
PLACEHOLDER = re.compile(r"\{(?:actorId|projectId|sessionId)\}")
SENTENCE_END = re.compile("[.!?]+(?:[ \t\n]+|$)|[\u3002\uff01\uff1f]+")
# A URL, host:port, and ARNs of something other than a secret.
LITERAL = re.compile(".*://.*|[^/#]+:[0-9]+|arn:.*")
MEMORY_ID = re.compile("[A-Za-z][A-Za-z0-9_-]{0,99}-[A-Za-z0-9]{10}")
SECRET_ARN = re.compile("arn:aws[a-z-]*:secretsmanager:.*")


def lint(document: Document, stem: str) -> Findings:
    """The findings in a collection whose file is called `<stem>.collection.md`."""
    id = document.get("collection_id")
    if id is not None and id != stem:
        expected = f"collections/{id}.collection.md"
        yield at("AML-E004", document, "collection_id", expected=expected)
    if id is not None and "_" in id:
        yield at("AML-W223", document, "collection_id")
    if document.get("meta") is not None and not document.has("meta", "last_updated"):
        yield at("AML-W205", document, "meta", "last_updated")
    description = document.get("meta", "description") or ""
    count = sum(not is_blank(sentence) for sentence in SENTENCE_END.split(description))
    if description and not 2 <= count <= 4:
        yield at("AML-W222", document, "meta", "description", count=count)
    if document.get("backend", "type") is not None:
        yield from _backend(document)
        yield from _secret(document)
    if document.get("backend", "type") == "agentcore_memory":
        yield from _long_term_memory(document)
    yield from lint_transport(document)


def _backend(document: Document) -> Findings:
    type, lifetime = document.get("backend", "type"), document.get("scope", "lifetime")
    if type in LIFE and lifetime in ("project", "user"):
        yield at("AML-E042", document, "backend", "type")
    if type not in LIFE and lifetime == "session":
        yield at("AML-E043", document, "backend", "type")
    if type in LIFE and lifetime == "session" and not document.has("backend", LIFE[type]):
        yield at("AML-W206", document, "backend", LIFE[type], name=LIFE[type])


def _secret(document: Document) -> Findings:
    number, name = NEEDED[document.get("backend", "type")]
    if not document.has("backend", name):
        id = f"AML-{'W' if document.get('status') == 'draft' else 'E'}20{number}"
        yield at(id, document, "backend", name)
    secret = document.get("backend", name)
    if not isinstance(secret, str) or secret.startswith("env:") or SECRET_ARN.fullmatch(secret):
        return
    if LITERAL.fullmatch(secret) or (name == "memory_id_secret" and MEMORY_ID.fullmatch(secret)):
        yield at("AML-E229", document, "backend", name, name=name)


def _long_term_memory(document: Document) -> Findings:
    if not document.has("backend", "retrieval_config"):
        yield at("AML-W207", document, "backend", "retrieval_config")
    if (document.get("backend", "batch_size") or 1) > 1:
        yield at("AML-W225", document, "backend", "batch_size")
    for namespace in document.get("backend", "retrieval_config") or {}:
        where = ("backend", "retrieval_config", namespace)
        yield from _namespace(document, where, namespace)
        top_k = (*where, "top_k")
        if (document.get(*top_k) or 0) > 100:
            yield at("AML-W220", document, *top_k)


def _namespace(document: Document, where: tuple[str, ...], namespace: str) -> Findings:
    lifetime = document.get("scope", "lifetime")
    other = {"project": ("{actorId}", "user"), "user": ("{projectId}", "project")}
    if not NAMESPACE.fullmatch(namespace):
        yield at("AML-E052", document, *where, name=namespace)
    elif re.search("[{}]", PLACEHOLDER.sub("", namespace)):
        yield at("AML-E053", document, *where)
    elif BESIDE.search(namespace):
        yield at("AML-E05B", document, *where)
    elif lifetime in other:
        placeholder, expected = other[lifetime]
        if placeholder in namespace:
            names = {"placeholder": placeholder, "expected": expected, "lifetime": lifetime}
            yield at("AML-W221", document, *where, **names)
        if lifetime == "project" and "{projectId}" not in namespace:
            yield at("AML-W228", document, *where)
        if lifetime == "user" and "{actorId}" not in namespace:
            yield at("AML-E231", document, *where)
