"""The statements of sessions in S3 in the IAM policy."""

from ..collections.check import Project
from ..collections.models import Collection
from ..collections.session_backend import S3Config
from .statements import Named, allow, variable


def session_statements(project: Project, collection: Collection, arn: str) -> list[Named]:
    """Return the statements of a collection by purpose; `arn` is the start of ARNs."""
    backend, is_writable = collection.backend, project.is_writable(collection)
    if not isinstance(backend, S3Config):
        return []
    bucket = f"{arn}:s3:::{variable(backend.bucket_secret or '')}"
    verbs = ["GetObject", "PutObject", "DeleteObject"] if is_writable else ["GetObject"]
    objects = f"{bucket}/{backend.prefix}/*" if backend.prefix else f"{bucket}/*"
    has_rule = is_writable and backend.prefix  # also to remove one
    rule = ["GetLifecycleConfiguration", "PutLifecycleConfiguration"] if has_rule else []
    return [
        ("Objects", allow("s3", verbs, objects)),
        ("Bucket", allow("s3", ["ListBucket", *rule], bucket)),
    ]
