"""The IAM policy that the agent needs on AWS, derived from its collections.

Values that only a deployment knows are ${VARIABLE}s: the account, the region, and secrets.
"""

import re
from typing import Any

from ..collections.check import Project
from ..collections.models import Collection
from .kinds import KINDS
from .session_iam import session_statements
from .statements import ACCOUNT, REGION, Statement

PARTITIONS = {"cn-": "aws-cn", "us-gov-": "aws-us-gov"}
VARIABLE = re.compile("[$][{][A-Za-z0-9_]+[}]")


def make_policy(project: Project, secrets_prefix: str = "") -> dict[str, Any]:
    """Return the policy for the collections that the agent uses."""
    used = project.used()
    regions = [getattr(collection.backend, "region", "") for collection in used]
    partitions = [
        name for start, name in PARTITIONS.items() for region in regions if region.startswith(start)
    ]
    arn, statements = f"arn:{next(iter(partitions), 'aws')}", dict[str, Statement]()
    for collection in used:
        name = "".join(
            part[:1].upper() + part[1:] for part in re.split("[-_]+", collection.collection_id)
        )
        kind = KINDS.get(collection.backend.type)
        statements_of = kind.statements if kind else session_statements
        for purpose, statement in statements_of(project, collection, arn):
            sid = purpose + name
            while sid in statements:
                sid += "X"
            statements[sid] = {"Sid": sid, "Effect": "Allow", **statement}
    prefix = f":secret:{secrets_prefix}"
    names = {secret for collection in used for secret in _secrets(collection, arn, prefix)}
    if secrets := sorted(names):
        statement = {"Action": ["secretsmanager:GetSecretValue"], "Resource": secrets}
        statements["Secrets"] = {"Sid": "Secrets", "Effect": "Allow", **statement}
    return {"Version": "2012-10-17", "Statement": [*statements.values()]}


def policy_file(project: Project) -> str:
    """Return the file in which the policy is saved."""
    return f"iam/{project.agent_id}.policy.json"


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
    """Return the secrets of AWS Secrets Manager that a collection names."""
    found: list[str] = []
    for ref in collection.backend.secret_refs():
        name = ref.reference.partition("#")[0]
        if name.startswith("env:"):
            continue
        if not name.startswith("arn:"):
            name = f"{arn}:secretsmanager:{ref.region or REGION}:{ACCOUNT}{prefix}{name}"
        # AWS adds six characters to the name, unless the reference is a whole ARN.
        is_whole = ref.reference.startswith("arn:") and re.search("-[A-Za-z0-9]{6}$", name)
        found.append(name if is_whole else f"{name}-??????")
    return found
