"""The statements of long-term memory in the IAM policy, and the parts of any statement."""

import re
from typing import Any

from ..collections.check import Project
from ..collections.memory_backend import AgentCoreConfig
from ..collections.models import Collection
from ..collections.secrets import variable_of
from .namespaces import PLACEHOLDER, Namespace, are_whole

ACCOUNT, REGION = "${AWS_ACCOUNT_ID}", "${AWS_REGION}"
Statement = dict[str, Any]
Named = tuple[str, Statement]


def allow(service: str, verbs: list[str], resource: str) -> Statement:
    """Return a statement that allows actions of a service."""
    return {"Action": [f"{service}:{verb}" for verb in verbs], "Resource": [resource]}


def variable(reference: str) -> str:
    """Return the variable that stands for the value of a secret."""
    if reference.startswith("env:"):
        return f"${{{re.sub('[^A-Za-z0-9_]+', '_', reference[4:])}}}"
    name = reference.rpartition(":secret:")[2]
    return f"${{{variable_of(name.replace('#', '_'))}}}"


def memory_statements(project: Project, collection: Collection, arn: str) -> list[Named]:
    """Return the statements of a collection by purpose; `arn` is the start of ARNs."""
    backend = collection.backend
    if not isinstance(backend, AgentCoreConfig):
        return []
    name = variable(backend.memory_id_secret or "")
    memory = f"{arn}:bedrock-agentcore:{backend.region}:{ACCOUNT}:memory/{name}"
    found = _recall(memory, backend) if collection.collection_id in project.reads else []
    if project.is_writable(collection):
        found.append(("Record", allow("bedrock-agentcore", ["CreateEvent"], memory)))
    return found


def _recall(memory: str, backend: AgentCoreConfig) -> list[Named]:
    recall = allow("bedrock-agentcore", ["RetrieveMemoryRecords"], memory)
    found: list[Named] = []
    if not are_whole(backend.retrieval_config):  # the memory resource lists its strategies
        found.append(("Describe", allow("bedrock-agentcore", ["GetMemory"], memory)))
    if backend.retrieval_config is None:
        return [*found, ("Recall", recall)]
    for purpose, is_subtree in (("Recall", False), ("RecallBelow", True)):
        keys = [key for key in backend.retrieval_config if key.endswith("/*") is is_subtree]
        paths = {f"/{PLACEHOLDER.sub('*', key.removesuffix('/*')).strip('/')}/" for key in keys}
        (name,) = Namespace("", is_subtree).parameter  # each parameter has a condition key
        condition = {"StringLike": {f"bedrock-agentcore:{name}": sorted(paths)}}
        found += [(purpose, recall | {"Condition": condition})] if paths else []
    return found
