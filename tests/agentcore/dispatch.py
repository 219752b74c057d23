"""What becomes of one HTTP request: read by the contract, met by a fault, answered and logged."""

import json
import re
import threading
import time
from typing import NamedTuple, Protocol

from tests.agentcore.calls import Call, Calls
from tests.agentcore.contract import Operation, Request, WrongReplyError, contract
from tests.agentcore.faults import Fault, Faults
from tests.agentcore.shapes import Omissions
from tests.agentcore.state import Given, ServiceError

SIGNED = r"AWS4-\S+ Credential=\S+/%s/aws4_request,.*Signature=\w+"
JSON = "application/json"


class Cut(Exception):  # noqa: N818 (no error: what a test asked for)
    """The connection closes without an answer."""


class Service(Protocol):
    """What is behind the operations."""

    def call(self, operation: str, given: Given) -> Given:
        """What the operation of that name answers. Raises ServiceError."""


class Answer(NamedTuple):
    status: int
    body: bytes
    error: str = ""
    content_type: str = JSON


class Dispatcher:
    """`violations` are requests that the contract does not allow, and wrong replies of this server.

    A request that AWS refuses with a ValidationException is one of them: whoever expects it takes
    it from the list.
    """

    signed_for = "bedrock-agentcore"

    def __init__(self, service: Service) -> None:
        self.behind = service
        self.faults = Faults()
        self.calls = Calls()
        self.violations: list[str] = []
        self._contract = contract(self.signed_for)
        self._lock = threading.Lock()

    def take_violations(self) -> list[str]:
        """The violations so far, which then no longer count."""
        with self._lock:
            found, self.violations = self.violations, []
            return found

    def answer(self, method: str, target: str, signature: str, body: bytes) -> Answer:
        """The answer to a request. Raises Cut for none."""
        path, _, query = target.partition("?")
        routed = self._contract.route(method, path)
        if routed is None:
            self._violated(f"no operation of the memory service: {method} {path}")
            return _plain(404, "UnknownOperationException", "Unknown operation")
        operation, labels = routed
        request = operation.read(labels, query, body)
        call = Call(operation.name, request.given)
        self.calls.add(call)
        try:
            answer = self._answer(operation, request, call, signature)
            call.error, call.status = answer.error, answer.status
            return answer
        finally:
            call.seconds = time.monotonic() - call.started

    def _answer(self, operation: Operation, request: Request, call: Call, signature: str) -> Answer:
        for name in request.unknown:
            self._violated(f"{operation.name}: unknown field {name}")
        if not re.match(SIGNED % self.signed_for, signature):
            self._violated(f"{operation.name}: not signed for {self.signed_for}")
            return self._error(operation, _error("AccessDeniedException", "Missing token"))
        fault = self.faults.take(operation.name, request.given)
        if fault is not None:
            call.fault = fault.kind
            instead = self._instead(operation, fault)
            if instead is not None:
                return instead
        answer = self._work(operation, request)
        if fault is not None and fault.kind == "lose reply":
            raise Cut
        return answer

    def _instead(self, operation: Operation, fault: Fault) -> Answer | None:
        """What a fault has the service do instead of its work; None when the work is done."""
        if fault.kind == "error":
            return self._error(operation, _error(fault.code, "A test asked for this"))
        if fault.kind == "status":
            return Answer(fault.status, b"<html></html>", str(fault.status), "text/html")
        if fault.kind in ("slow", "hang"):
            fault.wait()
        if fault.kind in ("hang", "cut"):
            raise Cut
        return None

    def _work(self, operation: Operation, request: Request) -> Answer:
        try:
            if request.problems:
                raise _refusal(request)
            reply = self.behind.call(operation.name, request.given)
            body = operation.write(reply, _omissions(operation, request.given))
            return Answer(operation.status, body)
        except ServiceError as error:
            if error.code == "ValidationException":
                self._violated(f"{operation.name}: {error}")
            return self._error(operation, error)
        except Exception as error:
            self._violated(f"this server is wrong: {operation.name}: {error!r}")
            return _plain(500, "ServiceException", repr(error))

    def _error(self, operation: Operation, error: ServiceError) -> Answer:
        try:
            status, body = operation.write_error(error.code, error.members)
        except WrongReplyError as wrong:
            self._violated(f"this server is wrong: {wrong}")
            return _plain(500, "ServiceException", str(wrong))
        return Answer(status, body, error.code)

    def _violated(self, what: str) -> None:
        with self._lock:
            self.violations.append(what)


def _refusal(request: Request) -> ServiceError:
    fields = [{"name": problem.path, "message": problem.message} for problem in request.problems]
    text = "; ".join(f"Value at '{path}': {message}" for path, message in request.problems)
    reason = "CannotParse" if request.is_unreadable else "FieldValidationFailed"
    message = f"{len(fields)} validation error(s) detected: {text}"
    return ServiceError("ValidationException", message, reason=reason, fieldList=fields)


def _omissions(operation: Operation, given: Given) -> Omissions:
    """Events without payloads have none, though the model requires it: so do AWS's replies."""
    if operation.name == "ListEvents" and given.get("includePayloads") is False:
        return frozenset({("Event", "payload")})
    return frozenset()


def _error(code: str, message: str) -> ServiceError:
    return ServiceError(code, message)


def _plain(status: int, code: str, message: str) -> Answer:
    return Answer(status, json.dumps({"message": message}).encode(), code)
