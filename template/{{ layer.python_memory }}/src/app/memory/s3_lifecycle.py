"""The lifecycle rule of a collection: merged into those of the bucket, once per process."""

import logging
from typing import Any

from botocore.exceptions import ClientError  # type: ignore[import-untyped]

from .s3_client import code_of

log = logging.getLogger(__name__)


def ensure_rule(s3: Any, bucket: str, collection_id: str, prefix: str, days: int | None) -> None:
    """Have S3 delete what is older, or with None no more; the rules of others stay as they are."""
    own = {"ID": f"aml-{collection_id}", "Filter": {"Prefix": prefix}}
    limits = {"Expiration": {"Days": days}, "NoncurrentVersionExpiration": {"NoncurrentDays": days}}
    rule = {**own, "Status": "Enabled", **limits}
    found: dict[str, Any] = {}
    try:
        found = s3.get_bucket_lifecycle_configuration(Bucket=bucket)
    except ClientError as error:
        if code_of(error) != "NoSuchLifecycleConfiguration":
            raise
    rules = found.get("Rules", [])
    if days:
        wanted = [*(other for other in rules if other.get("ID") != rule["ID"]), rule]
    else:  # with another prefix it is of another project, whose collection has the same id
        wanted = [other for other in rules if not own.items() <= other.items()]
    if rule in rules or wanted == rules:
        return
    size = "TransitionDefaultMinimumObjectSize"  # a setting beside the rules, kept as it is
    more = {size: found[size]} if size in found else {}
    if wanted:
        configuration = {"Rules": wanted}
        s3.put_bucket_lifecycle_configuration(
            Bucket=bucket, LifecycleConfiguration=configuration, **more
        )
    else:
        s3.delete_bucket_lifecycle(Bucket=bucket)
    what = f"what is older than {days} days goes" if days else "removed"
    log.info("s3: lifecycle rule %s: %s", rule["ID"], what)
