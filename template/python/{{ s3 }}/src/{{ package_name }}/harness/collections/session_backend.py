"""Fields and checks of a collection that stores sessions in Amazon S3."""

import re
from typing import Annotated, Literal

from pydantic import Field

from .fields import INTEGRAL, Reference, Region, SecretRef, Strict, matches, missing_address
from .reader import Document, Findings

ObjectPrefix = Annotated[
    str,
    matches(
        "(?=.{1,256}$)[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*",
        "parts of A-Z a-z 0-9 _ . - with single slashes between them",
    ),
]
# The name of a bucket, or the ARN of an access point.
BUCKET = re.compile("[A-Za-z0-9._-]{1,255}|arn:[A-Za-z0-9:/._-]{1,255}")


class S3Config(Strict):
    type: Literal["s3"]
    bucket_secret: Reference | None = None
    region: Region
    prefix: ObjectPrefix | None = None
    ttl_days: Annotated[int, INTEGRAL, Field(ge=1, le=2_147_483_647)] | None = None

    def secret_refs(self) -> list[SecretRef]:
        """Return the references to resolve before the collection is used."""
        reference = self.bucket_secret
        path = ("backend", "bucket_secret")
        accepts = BUCKET.fullmatch
        expected = "the name of a bucket"
        ref = SecretRef(reference or "", path=path, expected=expected, accepts=accepts)
        return [ref] if reference else []

    def findings(self, document: Document, status: str, lifetime: str) -> Findings:
        """Check combinations of fields."""
        if self.bucket_secret is None:
            yield from missing_address(document, "bucket_secret", status)
        if lifetime != "session":
            message = "s3 supports only lifetime session: use custom or agentcore_memory."
            yield document.finding("AML-E042", message, "backend", "type")
        elif self.ttl_days is None:
            message = "backend.ttl_days is missing: sessions never expire."
            yield document.finding("AML-W206", message, "backend", "ttl_days")
