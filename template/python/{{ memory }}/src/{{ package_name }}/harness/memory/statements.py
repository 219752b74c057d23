"""Build the statements of an IAM policy."""

import re
from typing import Any

from ..collections.secrets import variable_of

ACCOUNT = "${AWS_ACCOUNT_ID}"
REGION = "${AWS_REGION}"
Statement = dict[str, Any]
Named = tuple[str, Statement]


def allow(service: str, verbs: list[str], resource: str) -> Statement:
    """Return a statement that allows actions of a service."""
    return {"Action": [f"{service}:{verb}" for verb in verbs], "Resource": [resource]}


def variable(reference: str) -> str:
    """Return the policy variable that stands for the value of a secret."""
    if reference.startswith("env:"):
        return f"${{{re.sub('[^A-Za-z0-9_]+', '_', reference[4:])}}}"
    name = reference.rpartition(":secret:")[2]
    return f"${{{variable_of(name.replace('#', '_'))}}}"
