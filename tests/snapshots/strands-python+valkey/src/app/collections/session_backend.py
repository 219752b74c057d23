"""Sessions in Valkey or Redis: what their collection declares."""

from typing import Annotated, Literal

from pydantic import Field

from .fields import INTEGRAL, Reference, SecretRef, Strict, matches, missing_address
from .reader import Document, Findings

KeyPrefix = Annotated[
    str, matches("[A-Za-z0-9_.:/-]{1,128}", "1 to 128 characters of A-Z a-z 0-9 _ . : / -")
]


class ValkeyConfig(Strict):
    type: Literal["valkey"]
    endpoint_secret: Reference | None = None
    port: Annotated[int, INTEGRAL, Field(ge=1, le=65_535)] = 6379
    key_prefix: KeyPrefix = "session"
    ttl_seconds: Annotated[int, INTEGRAL, Field(ge=1, le=2_147_483_647)] | None = None

    def secret_refs(self) -> list[SecretRef]:
        """Return the references that are read before the collection is used."""
        reference, path = self.endpoint_secret, ("backend", "endpoint_secret")
        return [SecretRef(reference, path=path)] if reference else []

    def findings(self, document: Document, status: str, lifetime: str) -> Findings:
        """Check what concerns more than one field."""
        if self.endpoint_secret is None:
            yield from missing_address(document, "endpoint_secret", status)
        if lifetime != "session":
            message = "valkey stores only lifetime session: "
            message += f"use custom or agentcore_memory for lifetime {lifetime}."
            yield document.finding("AML-E042", message, "backend", "type")
        elif self.ttl_seconds is None:
            message = "backend.ttl_seconds is missing: sessions never expire."
            yield document.finding("AML-W206", message, "backend", "ttl_seconds")
