"""What the sessions need in the IAM policy: nothing, as they are not kept on AWS."""

from ..collections.check import Project
from ..collections.models import Collection
from .statements import Named


def session_statements(project: Project, collection: Collection, arn: str) -> list[Named]:
    """Return nothing."""
    return []
