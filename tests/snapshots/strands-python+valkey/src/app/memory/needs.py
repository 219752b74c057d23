"""What a collection needs on AWS, as statements of a policy.

What is known only where the agent runs stands there as ${VARIABLE}: the account, the region, and
the values of secrets, by the variables that replace them.
"""

import re
from typing import Any

from .access import Lambda
from .models import S3, AgentCoreMemory, Collection
from .namespaces import PLACEHOLDER, Place
from .project import Project
from .secrets import references_of
from .stores import is_writable

ACCOUNT, REGION = "${AWS_ACCOUNT_ID}", "${AWS_REGION}"
Statement = dict[str, Any]
Needs = list[tuple[str, Statement]]


def needs_of(project: Project, collection: Collection, arn: str) -> Needs:
    """Statements without their effect, each behind what it is for; `arn` is the start of ARNs."""
    backend, can_write = collection.backend, is_writable(project, collection)
    if isinstance(backend, AgentCoreMemory):
        name = _variable(backend.memory_id_secret or "")
        memory = f"{arn}:bedrock-agentcore:{backend.region}:{ACCOUNT}:memory/{name}"
        found = _recall(memory, backend) if collection.collection_id in project.reads else []
        if can_write:
            found.append(("Record", _statement("bedrock-agentcore", ["CreateEvent"], memory)))
        return found
    if isinstance(backend, S3):
        return _bucket(f"{arn}:s3:::{_variable(backend.bucket_secret or '')}", backend, can_write)
    way = backend.transport if backend.type == "custom" else None
    if not isinstance(way, Lambda):
        return []
    function = re.sub("^env:(.*)", r"${\1}", way.function_arn or way.function_id or "")
    if not way.function_arn and not function.startswith("arn:"):
        function = f"{arn}:lambda:{REGION}:{ACCOUNT}:function:{function}"
    return [("Invoke", _statement("lambda", ["InvokeFunction"], function))]


def _recall(memory: str, backend: AgentCoreMemory) -> Needs:
    verbs = ["RetrieveMemoryRecords"]
    if backend.retrieval_config is None:  # the memory says which namespaces there are
        described = _statement("bedrock-agentcore", ["GetMemory"], memory)
        return [("Describe", described), ("Recall", _statement("bedrock-agentcore", verbs, memory))]
    found: Needs = []
    for need, is_subtree in (("Recall", False), ("RecallBelow", True)):
        keys = [one for one in backend.retrieval_config if one.endswith("/*") is is_subtree]
        paths = {f"/{PLACEHOLDER.sub('*', it.removesuffix('/*')).strip('/')}/" for it in keys}
        (name,) = Place("", is_subtree).wire  # each parameter has a key of its own
        condition = {"StringLike": {f"bedrock-agentcore:{name}": sorted(paths)}}
        statement = _statement("bedrock-agentcore", verbs, memory) | {"Condition": condition}
        found += [(need, statement)] if paths else []
    return found


def _bucket(bucket: str, backend: S3, can_write: bool) -> Needs:
    verbs = ["GetObject", "PutObject", "DeleteObject"] if can_write else ["GetObject"]
    objects = f"{bucket}/{backend.prefix}/*" if backend.prefix else f"{bucket}/*"
    has_rule = can_write and backend.prefix and backend.ttl_days
    rule = ["GetLifecycleConfiguration", "PutLifecycleConfiguration"] if has_rule else []
    return [
        ("Objects", _statement("s3", verbs, objects)),
        ("Bucket", _statement("s3", ["ListBucket", *rule], bucket)),
    ]


def secrets_of(collection: Collection, arn: str) -> list[str]:
    """The secrets of AWS Secrets Manager that a collection names; a variable may replace them."""
    found: list[str] = []
    for reference, _, region in references_of(collection):
        name = reference.partition("#")[0]
        if not name.startswith(("arn:", "env:")):
            name = f"{arn}:secretsmanager:{region or REGION}:{ACCOUNT}:secret:{name}"
        if not name.startswith("env:"):  # behind its name each has six characters
            is_whole = reference.startswith("arn:") and re.search("-[A-Za-z0-9]{6}$", name)
            found.append(name if is_whole else f"{name}-??????")
    return found


def _statement(service: str, verbs: list[str], resource: str) -> Statement:
    return {"Action": [f"{service}:{verb}" for verb in verbs], "Resource": [resource]}


def _variable(reference: str) -> str:
    """What stands for the value of a secret."""
    if reference.startswith("env:"):
        return f"${{{re.sub('[^A-Za-z0-9_]+', '_', reference[4:])}}}"
    name = reference.rpartition(":secret:")[2]
    return f"${{{re.sub('[^A-Za-z0-9]+', '_', name).upper()}}}"
