"""The IAM statements for sessions in S3."""

from ..collections.check import Project
from ..collections.models import Collection
from ..collections.session_backend import S3Config
from .statements import Named, allow, variable


def session_statements(project: Project, collection: Collection, arn: str) -> list[Named]:
    """Return the IAM statements of a collection, by purpose; `arn` is the prefix of ARNs."""
    backend = collection.backend
    is_writable = project.is_writable(collection)
    if not isinstance(backend, S3Config):
        return []
    bucket, objects = _resources(backend, arn)
    verbs = ["GetObject", "PutObject", "DeleteObject"] if is_writable else ["GetObject"]
    has_rule = is_writable and backend.prefix  # to set or remove the lifecycle rule
    rule = ["GetLifecycleConfiguration", "PutLifecycleConfiguration"] if has_rule else []
    return [
        ("Objects", allow("s3", verbs, objects)),
        ("Bucket", allow("s3", ["ListBucket", *rule], bucket)),
    ]


def erasure_statements(project: Project, collection: Collection, arn: str) -> list[Named]:
    """Return the statements to erase old versions of sessions from a versioned bucket."""
    backend = collection.backend
    if not isinstance(backend, S3Config) or not project.is_writable(collection):
        return []
    bucket, objects = _resources(backend, arn)
    return [
        ("EraseVersions", allow("s3", ["GetObjectVersion", "DeleteObjectVersion"], objects)),
        ("ListVersions", allow("s3", ["ListBucketVersions"], bucket)),
    ]


def _resources(backend: S3Config, arn: str) -> tuple[str, str]:
    """Return the ARNs of the bucket and of its objects."""
    bucket = f"{arn}:s3:::{variable(backend.bucket_secret or '')}"
    return bucket, f"{bucket}/{backend.prefix}/*" if backend.prefix else f"{bucket}/*"
