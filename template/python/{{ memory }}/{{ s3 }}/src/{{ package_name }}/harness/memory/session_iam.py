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
    bucket, objects = _resources(backend, arn)
    verbs = ["GetObject", "PutObject", "DeleteObject"] if is_writable else ["GetObject"]
    has_rule = is_writable and backend.prefix  # also to remove one
    rule = ["GetLifecycleConfiguration", "PutLifecycleConfiguration"] if has_rule else []
    return [
        ("Objects", allow("s3", verbs, objects)),
        ("Bucket", allow("s3", ["ListBucket", *rule], bucket)),
    ]


def erasure_statements(project: Project, collection: Collection, arn: str) -> list[Named]:
    """Return the statements for what a bucket with versions keeps of ended sessions."""
    backend = collection.backend
    if not isinstance(backend, S3Config) or not project.is_writable(collection):
        return []
    bucket, objects = _resources(backend, arn)
    return [
        ("EraseVersions", allow("s3", ["GetObjectVersion", "DeleteObjectVersion"], objects)),
        ("ListVersions", allow("s3", ["ListBucketVersions"], bucket)),
    ]


def _resources(backend: S3Config, arn: str) -> tuple[str, str]:
    """Return the ARN of the bucket, and that of its objects."""
    bucket = f"{arn}:s3:::{variable(backend.bucket_secret or '')}"
    return bucket, f"{bucket}/{backend.prefix}/*" if backend.prefix else f"{bucket}/*"
