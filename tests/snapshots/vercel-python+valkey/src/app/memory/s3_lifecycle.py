"""The lifecycle rule of a collection: merged into those of the bucket, once per process."""

import logging
from typing import Any

from botocore.exceptions import ClientError  # type: ignore[import-untyped]

from .s3_client import code_of

log = logging.getLogger(__name__)


def ensure_rule(s3: Any, bucket: str, collection_id: str, prefix: str, days: int) -> None:
    """Have S3 delete what is older; the rules of others stay as they are."""
    rule = {
        "ID": f"aml-{collection_id}",
        "Status": "Enabled",
        "Filter": {"Prefix": prefix},
        "Expiration": {"Days": days},
        "NoncurrentVersionExpiration": {"NoncurrentDays": days},
    }
    found: dict[str, Any] = {}
    try:
        found = s3.get_bucket_lifecycle_configuration(Bucket=bucket)
    except ClientError as error:
        if code_of(error) != "NoSuchLifecycleConfiguration":
            raise
    rules = found.get("Rules", [])
    if rule in rules:
        return
    kept = [other for other in rules if other.get("ID") != rule["ID"]]
    size = "TransitionDefaultMinimumObjectSize"  # a setting beside the rules, kept as it is
    more = {size: found[size]} if size in found else {}
    configuration = {"Rules": [*kept, rule]}
    s3.put_bucket_lifecycle_configuration(
        Bucket=bucket, LifecycleConfiguration=configuration, **more
    )
    log.info("s3: lifecycle rule %s: what is older than %d days goes", rule["ID"], days)
