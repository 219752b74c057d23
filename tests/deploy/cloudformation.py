"""A CloudFormation template as far as renders use it: its values, once everything is created."""

import re
from pathlib import Path
from typing import Any

import yaml

from tests.agentcore.shapes import Check

ACCOUNT, REGION = "111122223333", "us-east-1"
MEMORY, BUCKET = "my_agent_memory-0123456789", "my-agent-sessions-0123456789ab"
CREATED = {
    "AWS::AccountId": ACCOUNT,
    "AWS::Partition": "aws",
    "AWS::Region": REGION,
    "Role.Arn": f"arn:aws:iam::{ACCOUNT}:role/my-agent-Role-0123456789AB",
    "Runtime.AgentRuntimeArn": (
        f"arn:aws:bedrock-agentcore:{REGION}:{ACCOUNT}:runtime/my_agent-0123456789"
    ),
    "Runtime.AgentRuntimeId": "my_agent-0123456789",
    "Runtime.AgentRuntimeVersion": "7",
    "Memory.MemoryArn": f"arn:aws:bedrock-agentcore:{REGION}:{ACCOUNT}:memory/{MEMORY}",
    "Memory.MemoryId": MEMORY,
    "DataSource.DataSourceId": "DS12345678",
    "KnowledgeBase": "KB12345678",
    "KnowledgeBase.KnowledgeBaseArn": (
        f"arn:aws:bedrock:{REGION}:{ACCOUNT}:knowledge-base/KB12345678"
    ),
    "KnowledgeBaseRole": "my-agent-KnowledgeBaseRole-0123456789",
    "KnowledgeBaseRole.Arn": f"arn:aws:iam::{ACCOUNT}:role/my-agent-KnowledgeBaseRole-0123456789",
    "Sessions": BUCKET,
    "Sessions.Arn": f"arn:aws:s3:::{BUCKET}",
    "VectorIndex.IndexArn": f"arn:aws:s3vectors:{REGION}:{ACCOUNT}:bucket/vectors/index/facts",
    "Vectors.VectorBucketArn": f"arn:aws:s3vectors:{REGION}:{ACCOUNT}:bucket/vectors",
}


class _Loader(yaml.SafeLoader):
    pass


def _function(loader: yaml.Loader, name: str, node: yaml.Node) -> Any:
    if isinstance(node, yaml.SequenceNode):
        return {name: loader.construct_sequence(node, deep=True)}
    return {name: node.value}


_Loader.add_multi_constructor("!", _function)


class Stack:
    """What is declared in `deploy/agentcore.yaml`, deployed with these parameters."""

    def __init__(self, project: Path, **parameters: str) -> None:
        self.file = project / "deploy" / "agentcore.yaml"
        self.declared: dict[str, Any] = yaml.load(self.file.read_text(), _Loader)
        self.parameters = self.declared["Parameters"]
        assert parameters.keys() <= self.parameters.keys(), "a parameter is not declared"
        given = {name: it.get("Default") for name, it in self.parameters.items()} | parameters
        lists = [name for name, it in self.parameters.items() if "List" in it["Type"]]
        split = {name: [it for it in str(given[name]).split(",") if it] for name in lists}
        self._known = CREATED | given | split | {"AWS::NoValue": None}
        for name, value in given.items():
            assert value is not None, f"the parameter {name} is required"
            allowed = self.parameters[name].get("AllowedPattern", ".*")
            assert re.fullmatch(allowed, value), f"{name} may not be {value}"

    @property
    def refusals(self) -> list[str]:
        """Why the service refuses these parameters together."""
        rules = [it for rule in self.declared["Rules"].values() for it in rule["Assertions"]]
        return [it["AssertDescription"] for it in rules if not self._resolve(it["Assert"])]

    @property
    def resources(self) -> dict[str, Any]:
        """The resources that are made."""
        declared: dict[str, Any] = self.declared["Resources"]
        tested = {name: it.get("Condition") for name, it in declared.items()}
        made = {n for n, it in tested.items() if not it or self._resolve({"If": [it, True, False]})}
        return {name: it for name, it in declared.items() if name in made}

    def properties(self, name: str) -> dict[str, Any]:
        """The properties of a resource."""
        declared = self.declared["Resources"][name].get("Properties", {})
        found: dict[str, Any] = self._resolve(declared)
        return found

    @property
    def environment(self) -> dict[str, str]:
        """The variables of the agent."""
        found: dict[str, str] = self.properties("Runtime")["EnvironmentVariables"]
        return found

    @property
    def statements(self) -> dict[str, Any]:
        """What the agent's role allows, by Sid."""
        (policy,) = self.properties("Role")["Policies"]
        statements = policy["PolicyDocument"]["Statement"]
        assert {one["Effect"] for one in statements} == {"Allow"}
        return {one["Sid"]: one for one in statements}

    @property
    def outputs(self) -> dict[str, str]:
        return {name: self._resolve(it["Value"]) for name, it in self.declared["Outputs"].items()}

    def _resolve(self, value: Any) -> Any:
        match value:
            case {"Ref": name} | {"GetAtt": name}:
                return self._known[name]
            case {"If": [condition, one, other]}:
                holds = self._resolve(self.declared["Conditions"][condition])
                return self._resolve(one if holds else other)
            case {"Equals": [one, other]}:
                return self._resolve(one) == self._resolve(other)
            case {"Not": [condition]}:
                return not self._resolve(condition)
            case {"Or": conditions}:
                return any(self._resolve(conditions))
            case {"Join": [between, parts]}:
                return str(between).join(self._resolve(parts))
            case {"Split": [between, text]}:
                return str(self._resolve(text)).split(between)
            case {"Sub": text}:
                return re.sub(r"\$\{(.+?)\}", lambda match: self._known[match[1]], text)
            case dict():
                every = {name: self._resolve(one) for name, one in value.items()}
                return {name: one for name, one in every.items() if one is not None}
            case list():
                return [one for one in map(self._resolve, value) if one is not None]
        return value


def lost(before: Stack, after: Stack) -> set[str]:
    """The resources that an update of a stack deletes with all that they hold."""
    deleted: set[str] = set()
    for name, resource in before.resources.items():
        if name not in after.resources:
            is_kept = resource.get("DeletionPolicy", "") in {"Retain", "RetainExceptOnCreate"}
        elif replaced(before, after, name):
            is_kept = after.resources[name].get("UpdateReplacePolicy") == "Retain"
        else:
            is_kept = True
        if not is_kept:
            deleted.add(name)
    return deleted


def replaced(before: Stack, after: Stack, name: str) -> bool:
    """Whether an update makes another resource, as a create-only property has another value."""
    # Each test process imports this module, and few need what takes a second to import.
    from cfnlint.schema.manager import PROVIDER_SCHEMA_MANAGER

    if before.resources[name]["Type"] != after.resources[name]["Type"]:
        return True
    schema = PROVIDER_SCHEMA_MANAGER.get_resource_schema(REGION, before.resources[name]["Type"])
    pointers = schema.schema.get("createOnlyProperties", [])
    paths = [pointer.removeprefix("/properties/").split("/") for pointer in pointers]
    return any(
        _value(before.properties(name), path) != _value(after.properties(name), path)
        for path in paths
    )


def _value(properties: Any, path: list[str]) -> Any:
    for part in path:
        properties = properties.get(part) if isinstance(properties, dict) else None
    return properties


def request(shape: Any, value: Any) -> Any:
    """The properties of a resource as the request that creates it, whose shape is AWS's own."""
    check = Check()
    given = check.read(shape, _as_request(shape, value))
    assert (check.problems, check.unknown) == ([], [])
    return given


def _as_request(shape: Any, value: Any) -> Any:
    if shape.type_name == "structure" and isinstance(value, str):  # a shorter form of one member
        return dict.fromkeys(shape.required_members, value)
    if shape.type_name == "structure":
        named = {name[0].lower() + name[1:]: one for name, one in value.items()}
        known = {name: shape.members.get(name) for name in named}
        return {
            name: _as_request(known[name], one) if known[name] else one
            for name, one in named.items()
        }
    if shape.type_name == "list":
        return [_as_request(shape.member, one) for one in value]
    return value
