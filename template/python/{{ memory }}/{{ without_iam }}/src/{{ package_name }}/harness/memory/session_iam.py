"""The sessions need no IAM statements: they are not on AWS."""

from ..collections.check import Project
from ..collections.models import Collection
from .statements import Named


def session_statements(project: Project, collection: Collection, arn: str) -> list[Named]:
    """Return no statements."""
    return []


def erasure_statements(_project: Project, _collection: Collection, _arn: str) -> list[Named]:
    """Return no statements: the sessions are not on AWS."""
    return []
