"""Check the saved IAM policies and the AWS resources of long-term memory."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..collections.check import Project
from ..collections.reader import Document, FieldPath, finding, read_document
from ..collections.secrets import has_aws_credentials
from ..findings import Finding
from .base import MemoryCollection, MemoryRefused, MemoryUnavailable
from .iam import (
    erasure_policy_file,
    is_filled_in,
    make_erasure_policy,
    make_policy,
    policy_file,
)
from .kinds import Kind
from .local import LocalMemory

Findings = list[Finding]


def check_policy(project: Project, secrets_prefix: str = "") -> Findings:
    """Return a warning for each saved policy that differs from the policy the project needs."""
    policy = make_policy(project, secrets_prefix)
    erasure_policy = make_erasure_policy(project)
    return [
        *_check_saved(policy_file(project), policy, "iam"),
        *_check_saved(erasure_policy_file(project), erasure_policy, "iam --erasure"),
    ]


def _check_saved(file: str, policy: dict[str, Any], command: str) -> Findings:
    if not Path(file).exists():
        return []
    try:
        saved = json.loads(Path(file).read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        saved = None
    if is_filled_in(saved, policy):
        return []
    message = f"This policy differs from the output of `{command}`: "
    message += f"save it again with `{command} --save`."
    return [finding("AML-W248", file, 1, message)]


async def check_resources(
    project: Project,
    collections: list[MemoryCollection],
    kinds: Mapping[str, Kind],
    project_id: str | None,
) -> Findings:
    """Return the differences between memories on AWS and the collection files."""
    findings = Findings()
    for collection in collections:
        backend = project.collections[collection.id].backend
        if not isinstance(collection.memory, LocalMemory):
            file = f"collections/{collection.id}.collection.md"
            document = read_document(Path(file), file)
            path = backend.secret_refs()[0].path
            findings += await _check(collection, document, path, kinds[backend.type], project_id)
    return findings


async def _check(
    collection: MemoryCollection,
    document: Document,
    path: FieldPath,
    kind: Kind,
    project_id: str | None,
) -> Findings:
    try:
        if not has_aws_credentials():
            raise MemoryUnavailable("AWS credentials are missing")
        return await kind.check(collection, document, project_id)
    except MemoryUnavailable as error:
        if isinstance(error, MemoryRefused) or error.code == "ResourceNotFoundException":
            resource = collection.memory.contact
            message = f"{resource[0].upper()}{resource[1:]} does not exist: create it, "
            message += "or correct the id."
            return [document.finding("AML-E112", message, *path)]
        message = f"The status and namespaces of the memory could not be verified: {error}."
        return [document.finding("AML-W247", message, *path)]
