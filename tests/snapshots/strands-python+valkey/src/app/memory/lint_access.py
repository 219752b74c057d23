"""What does not fit together in the transport of a custom collection and its credentials."""

from collections.abc import Iterator
from typing import Any

from .access import Credentials
from .frontmatter import Document
from .rules import at

Findings = Iterator[dict[str, Any]]
TRANSPORT = ("backend", "transport")
CREDENTIALS = (*TRANSPORT, "credentials")
SCHEMES = {"rest-api": ("none", "api-key", "bearer-token"), "lambda": ("iam-role",)}
REFUSED = {"oauth2": "AML-E096", "service-account": "AML-E097"}
# What a scheme needs; what a source needs, which is the first, and may have.
OF_SCHEME = {"api-key": ("header", "source"), "bearer-token": ("source",)}
OF_SOURCE = {"env": ("name", "key"), "aws_secrets_manager": ("secret_id", "region", "key")}
# The fields of what is refused, about which no more is said.
OF_REFUSED = {"project", "secret", "version", "vault_url", "secret_name"}
OF_REFUSED |= {"provider", "function_id", "scopes"}
ABSENT = {
    "header": "AML-E09A",
    "source": "AML-E09C",
    "name": "AML-E09F",
    "secret_id": "AML-E0A1",
}


def lint_transport(document: Document) -> Findings:
    """The findings in `backend.transport`, where its type is known."""
    type = document.get(*TRANSPORT, "type")
    if document.get("backend", "type") != "custom" or type is None:
        return
    yield from _rest_api(document) if type == "rest-api" else _lambda(document)
    for name in document.get(*CREDENTIALS) or {}:
        if name not in OF_REFUSED and name not in Credentials.model_fields:
            yield at("AML-E099", document, *CREDENTIALS, name, name=name)
    if document.get(*CREDENTIALS, "scheme") is not None:
        yield from _credentials(document, type)


def _rest_api(document: Document) -> Findings:
    where = (*TRANSPORT, "base_url")
    url = document.get(*where) or "env:"
    if not url.startswith("env:"):
        yield at("AML-W224", document, *where)
        if url.endswith("/"):
            yield at("AML-E088", document, *where)
        if "@" in url.split("/")[2]:
            yield at("AML-E089", document, *where)


def _lambda(document: Document) -> Findings:
    has_arn = document.has(*TRANSPORT, "function_arn")
    has_provider = document.has(*TRANSPORT, "provider")
    has_id = document.has(*TRANSPORT, "function_id")
    if not has_arn and not (has_provider and has_id):
        yield at("AML-E0B1", document, *TRANSPORT)
    if has_arn and (has_provider or has_id):
        yield at("AML-E0B2", document, *TRANSPORT)
    for name in ("function_arn", "function_id"):
        function = document.get(*TRANSPORT, name)
        if function is not None and not function.startswith("env:"):
            yield at("AML-W224", document, *TRANSPORT, name)
            if function.startswith("arn:") and len(function.split(":")[4]) != 12:
                yield at("AML-W226", document, *TRANSPORT, name)


def _credentials(document: Document, transport: str) -> Findings:
    scheme = document.get(*CREDENTIALS, "scheme")
    source = document.get(*CREDENTIALS, "source")
    if scheme in REFUSED:
        yield at(REFUSED[scheme], document, *CREDENTIALS, "scheme")
        return
    if scheme not in SCHEMES[transport]:
        yield at("AML-E098", document, *CREDENTIALS, "scheme", transport=transport)
        return
    needed = OF_SCHEME.get(scheme, ())
    if "source" in needed and source in OF_SOURCE:
        needed += OF_SOURCE[source][:1]
    for name in needed:
        if not document.has(*CREDENTIALS, name):
            yield at(ABSENT[name], document, *CREDENTIALS, name)
    if "source" in needed and source not in OF_SOURCE:  # whose fields cannot be known
        if source is not None:
            yield at("AML-E09E", document, *CREDENTIALS, "source")
        return
    taken = {"scheme", *needed, *(OF_SOURCE[source] if "source" in needed else ())}
    for name in document.get(*CREDENTIALS):
        if name not in taken and (name in OF_REFUSED or name in Credentials.model_fields):
            yield at("AML-E0A5", document, *CREDENTIALS, name, name=name)
