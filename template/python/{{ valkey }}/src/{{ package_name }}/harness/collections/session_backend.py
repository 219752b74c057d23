"""Fields and checks of a collection that stores sessions in Valkey or Redis."""

import re
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import Field

from .fields import INTEGRAL, Reference, SecretRef, Strict, matches, missing_address
from .reader import Document, Findings

KeyPrefix = Annotated[
    str, matches("[A-Za-z0-9_.:/-]{1,128}", "1 to 128 characters of A-Z a-z 0-9 _ . : / -")
]
ADDRESS = "an address such as valkeys://user:p%40ss@host:6379"
HOST = r"(?:[\w-]{1,63}\.)*[\w-]{1,63}\.?|[0-9A-Fa-f.]*:[0-9A-Fa-f:.]*"


class ValkeyConfig(Strict):
    type: Literal["valkey"]
    endpoint_secret: Reference | None = None
    port: Annotated[int, INTEGRAL, Field(ge=1, le=65_535)] = 6379
    key_prefix: KeyPrefix = "session"
    ttl_seconds: Annotated[int, INTEGRAL, Field(ge=1, le=2_147_483_647)] | None = None

    def secret_refs(self) -> list[SecretRef]:
        """Return the references to resolve before the collection is used."""
        reference = self.endpoint_secret
        path = ("backend", "endpoint_secret")
        ref = SecretRef(reference or "", path=path, expected=ADDRESS, accepts=url_of)
        return [ref] if reference else []

    def findings(self, document: Document, status: str, lifetime: str) -> Findings:
        """Check combinations of fields."""
        if self.endpoint_secret is None:
            yield from missing_address(document, "endpoint_secret", status)
        if lifetime != "session":
            message = "valkey supports only lifetime session: use custom or agentcore_memory."
            yield document.finding("AML-E042", message, "backend", "type")
        elif self.ttl_seconds is None:
            message = "backend.ttl_seconds is missing: sessions never expire."
            yield document.finding("AML-W206", message, "backend", "ttl_seconds")


def url_of(secret: str) -> str | None:
    """Return the secret if it is a URL, or a URL for a host; None for any other text."""
    is_bare_ipv6 = secret.count(":") > 1 and not re.search("[][/]", secret)
    url = secret if "://" in secret else f"valkey://{f'[{secret}]' if is_bare_ipv6 else secret}"
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        _ = parts.port  # raises ValueError for an invalid port
    except ValueError:
        return None
    # An unescaped / or # in a password would make its start the host, and messages quote the host.
    is_split = "@" in parts.path + parts.query + parts.fragment
    is_host = re.fullmatch(HOST, host, re.ASCII) and not host.isdigit() and not is_split
    return url if is_host and re.match("(valkey|redis)s?://", url) else None
