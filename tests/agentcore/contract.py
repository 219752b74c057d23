"""AWS's contract of a memory, from botocore's own service models: routes and messages."""

import json
from functools import cache
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote

from botocore.loaders import Loader
from botocore.model import ServiceModel

from tests.agentcore.shapes import Check, Omissions, Problem

PLANES = {
    "bedrock-agentcore": (
        *("CreateEvent", "ListEvents", "GetEvent", "DeleteEvent", "ListSessions", "ListActors"),
        *("RetrieveMemoryRecords", "ListMemoryRecords", "GetMemoryRecord", "DeleteMemoryRecord"),
        *("BatchCreateMemoryRecords", "BatchUpdateMemoryRecords", "BatchDeleteMemoryRecords"),
    ),
    "bedrock-agentcore-control": (
        *("CreateMemory", "GetMemory", "UpdateMemory", "ListMemories", "DeleteMemory"),
    ),
}
KNOWLEDGE_BASES = {
    "bedrock-agent-runtime": ("Retrieve",),
    "bedrock-agent": (
        *("IngestKnowledgeBaseDocuments", "ListKnowledgeBaseDocuments"),
        *("GetKnowledgeBaseDocuments", "DeleteKnowledgeBaseDocuments"),
        *("GetKnowledgeBase", "GetDataSource"),
    ),
}
OPERATIONS = frozenset(
    name for planes in (PLANES, KNOWLEDGE_BASES) for names in planes.values() for name in names
)


class WrongReplyError(Exception):
    """This server was about to answer what the service's model does not allow."""


class Request(NamedTuple):
    """What a client sent: `problems` make it a 400, `unknown` are fields of no model."""

    given: dict[str, Any]
    problems: list[Problem]
    unknown: list[str]
    is_unreadable: bool


class Operation:
    """One operation of a service: how its requests are read and its replies are written."""

    def __init__(self, model: Any) -> None:
        self.name: str = model.name
        self.method: str = model.http["method"]
        self.status: int = model.http["responseCode"]
        self.segments = _segments(model.http["requestUri"])
        self._input, self._output = model.input_shape, model.output_shape
        self._errors = {shape.name: shape for shape in model.error_shapes}
        self._places: dict[str, tuple[str, str]] = {}
        for name, shape in self._input.members.items():
            place = shape.serialization.get("location", "body")
            if place not in ("uri", "querystring", "body"):
                raise NotImplementedError(f"{self.name}: {name} is in {place}")
            if place != "body" and shape.type_name != "string":
                raise NotImplementedError(f"{self.name}: {name} is no string")
            self._places[name] = (place, shape.serialization.get("name", name))
        if "payload" in self._input.serialization:
            raise NotImplementedError(f"{self.name}: its body is one member")

    def labels(self, segments: list[str]) -> dict[str, str] | None:
        """The values in a path that is this operation's; None for a path that is not."""
        if len(segments) != len(self.segments):
            return None
        found: dict[str, str] = {}
        for own, segment in zip(self.segments, segments, strict=True):
            if own.startswith("{"):
                found[own[1:-1]] = unquote(segment)
            elif own != segment:
                return None
        return found

    def read(self, labels: dict[str, str], query: str, body: bytes) -> Request:
        """A request as Python values, checked by the model."""
        asked = dict(parse_qsl(query, keep_blank_values=True))
        has_body = any(place == "body" for place, _ in self._places.values())
        try:
            sent = json.loads(body or b"{}")
        except ValueError as error:
            return Request({}, [Problem("", f"Malformed JSON: {error}")], [], True)
        if not isinstance(sent, dict):
            return Request({}, [Problem("", "The body must be a JSON object")], [], True)
        unknown = [] if has_body else list(sent)
        given = dict(sent) if has_body else {}
        for name, (place, wire) in self._places.items():
            if place == "body":
                continue
            if name in given:
                unknown.append(f"{name} (in the body)")
            given.pop(name, None)
            values = labels if place == "uri" else asked
            if wire in values:
                given[name] = values.pop(wire) if place == "querystring" else values[wire]
        check = Check()
        found = check.read(self._input, given)
        unknown += [*check.unknown, *(f"?{name}" for name in asked)]
        return Request(found, check.problems, unknown, check.is_unreadable)

    def write(self, reply: dict[str, Any], omissions: Omissions = frozenset()) -> bytes:
        """The body of a reply. Raises WrongReplyError when the model does not allow it."""
        return self._write(self._output, reply, omissions)

    def write_error(self, code: str, members: dict[str, Any]) -> tuple[int, bytes]:
        """The status and the body of an error that the model knows for this operation."""
        if code not in self._errors:
            raise WrongReplyError(f"{self.name} has no {code}")
        shape = self._errors[code]
        known = {name: value for name, value in members.items() if name in shape.members}
        return shape.metadata["error"]["httpStatusCode"], self._write(shape, known)

    def _write(
        self, shape: Any, value: dict[str, Any], omissions: Omissions = frozenset()
    ) -> bytes:
        check = Check(omissions)
        body = json.dumps(check.write(shape, value)).encode()
        if check.problems or check.unknown:
            raise WrongReplyError(f"{self.name}: {check.problems} {check.unknown}")
        return body


class Contract:
    """All operations of both planes, found by method and path."""

    def __init__(self, planes: dict[str, tuple[str, ...]]) -> None:
        loader = Loader()
        self.operations: dict[str, Operation] = {}
        for service, names in planes.items():
            model = ServiceModel(loader.load_service_model(service, "service-2"), service)
            for name in names:
                self.operations[name] = Operation(model.operation_model(name))

    def route(self, method: str, path: str) -> tuple[Operation, dict[str, str]] | None:
        """Whose request this is, and the values in its path, which is still percent-encoded."""
        segments = _segments(path)
        for operation in self.operations.values():
            if operation.method != method:
                continue
            labels = operation.labels(segments)
            if labels is not None:
                return operation, labels
        return None


@cache
def contract(signed_for: str) -> Contract:
    """The contract of a service by the name in its signatures, which takes a while to read."""
    return Contract({"bedrock-agentcore": PLANES, "bedrock": KNOWLEDGE_BASES}[signed_for])


def _segments(path: str) -> list[str]:
    return path.strip("/").split("/")
