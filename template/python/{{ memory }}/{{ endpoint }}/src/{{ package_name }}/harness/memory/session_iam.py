"""The IAM statement for sessions behind a Lambda function."""

import re

from ..collections.check import Project
from ..collections.models import Collection
from ..collections.session_backend import CustomConfig, LambdaTransport
from .statements import ACCOUNT, REGION, Named, allow


def session_statements(_project: Project, collection: Collection, arn: str) -> list[Named]:
    """Return the IAM statements of a collection, by purpose; `arn` is the prefix of ARNs."""
    backend = collection.backend
    transport = backend.transport if isinstance(backend, CustomConfig) else None
    if not isinstance(transport, LambdaTransport):
        return []
    function = transport.function_arn or transport.function_id or ""
    function = re.sub("^env:(.*)", r"${\1}", function)
    if not transport.function_arn and not function.startswith("arn:"):
        function = f"{arn}:lambda:{REGION}:{ACCOUNT}:function:{function}"
    return [("Invoke", allow("lambda", ["InvokeFunction"], function))]


def erasure_statements(_project: Project, _collection: Collection, _arn: str) -> list[Named]:
    """Return no statements: `forget` makes the same calls as turns."""
    return []
