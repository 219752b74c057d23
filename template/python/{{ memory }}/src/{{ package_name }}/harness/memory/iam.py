"""Make the IAM policy that the agent's collections need.

Variables such as ${AWS_REGION} stand for the account, the region and secrets.
"""

import re
from collections.abc import Callable
from typing import Any

from ..collections.check import Project
from ..collections.models import Collection
from .kinds import KINDS
from .session_iam import erasure_statements, session_statements
from .statements import ACCOUNT, REGION, Named, Statement

PARTITIONS = {"cn-": "aws-cn", "us-gov-": "aws-us-gov"}
VERSION = "2012-10-17"  # version of the policy language
VARIABLE = re.compile("[$][{][A-Za-z0-9_]+[}]")


def make_policy(project: Project, secrets_prefix: str = "") -> dict[str, Any]:
    """Return the IAM policy for the collections that the agent uses."""
    used = project.used()
    arn = _start_of_arns(project)

    def statements_of(collection: Collection) -> list[Named]:
        kind = KINDS.get(collection.backend.type)
        return (kind.statements if kind else session_statements)(project, collection, arn)

    statements = _with_names(used, statements_of)
    prefix = f":secret:{secrets_prefix}"
    names = {secret for collection in used for secret in _secrets(collection, arn, prefix)}
    if secrets := sorted(names):
        statement = {"Action": ["secretsmanager:GetSecretValue"], "Resource": secrets}
        statements.append({"Sid": "Secrets", "Effect": "Allow", **statement})
    return {"Version": VERSION, "Statement": statements}


def make_erasure_policy(project: Project) -> dict[str, Any]:
    """Return the IAM policy for the additional calls of `forget`."""
    arn = _start_of_arns(project)

    def statements_of(collection: Collection) -> list[Named]:
        kind = KINDS.get(collection.backend.type)
        if kind:
            return kind.erasure_statements(collection, arn)
        return erasure_statements(project, collection, arn)

    return {"Version": VERSION, "Statement": _with_names(project.used(), statements_of)}


def _start_of_arns(project: Project) -> str:
    used = project.used()
    regions = [getattr(collection.backend, "region", "") for collection in used]
    partitions = [
        name for start, name in PARTITIONS.items() for region in regions if region.startswith(start)
    ]
    return f"arn:{next(iter(partitions), 'aws')}"


def _with_names(
    collections: list[Collection], statements_of: Callable[[Collection], list[Named]]
) -> list[Statement]:
    """Return the statements of collections, with unique ids."""
    statements: dict[str, Statement] = {}
    for collection in collections:
        name = "".join(
            part[:1].upper() + part[1:] for part in re.split("[-_]+", collection.collection_id)
        )
        for purpose, statement in statements_of(collection):
            sid = purpose + name
            while sid in statements:
                sid += "X"
            statements[sid] = {"Sid": sid, "Effect": "Allow", **statement}
    return [*statements.values()]


def policy_file(project: Project) -> str:
    """Return the file where `iam --save` writes the policy."""
    return f"iam/{project.agent_id}.policy.json"


def erasure_policy_file(project: Project) -> str:
    """Return the file where `iam --erasure --save` writes the policy."""
    return f"iam/{project.agent_id}.erasure.json"


def is_filled_in(saved: Any, policy: Any) -> bool:
    """Whether a saved policy equals `policy`, with or without values for its variables."""
    if isinstance(policy, dict):
        is_same = isinstance(saved, dict) and saved.keys() == policy.keys()
        return is_same and all(is_filled_in(saved[name], policy[name]) for name in policy)
    if isinstance(policy, list):
        is_same = isinstance(saved, list) and len(saved) == len(policy)
        return is_same and all(map(is_filled_in, saved, policy))
    pattern = ".+".join(map(re.escape, VARIABLE.split(policy)))
    return isinstance(saved, str) and re.fullmatch(pattern, saved) is not None


def _secrets(collection: Collection, arn: str, prefix: str) -> list[str]:
    """Return the ARNs of a collection's secrets in AWS Secrets Manager."""
    arns: list[str] = []
    for ref in collection.backend.secret_refs():
        name = ref.reference.partition("#")[0]
        if name.startswith("env:"):
            continue
        if not name.startswith("arn:"):
            name = f"{arn}:secretsmanager:{ref.region or REGION}:{ACCOUNT}{prefix}{name}"
        # AWS appends six random characters to the name; a complete ARN already has them.
        is_complete = ref.reference.startswith("arn:") and re.search("-[A-Za-z0-9]{6}$", name)
        arns.append(name if is_complete else f"{name}-??????")
    return arns
