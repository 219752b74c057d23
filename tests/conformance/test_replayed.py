"""Each answer that a provider may send, with each client: hello, the answer, and a next turn.

Nothing runs that the model did not ask for, no request is refused, and the session goes on.
"""

import json
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.conformance import targets
from tests.conformance.client import JSON, SESSION, Reply
from tests.conformance.refusals import text_of
from tests.conformance.replay import Replay, Request
from tests.conformance.server import Fleet, Server
from tests.conformance.targets import TARGETS, Target
from tests.conformance.transcripts import Call, Expected, Transcript, transcripts

pytestmark = [pytest.mark.slow, pytest.mark.about("turns")]

VENDOR_TARGETS = [*TARGETS, *targets.VENDOR_TARGETS]
RECORDERS = Path(__file__).with_name("recorders")
LOGGED = "arguments are not one JSON object"
REFUSED = "The arguments of this call are not one JSON object, so the tool did not run."
QUOTED = 200  # characters of the arguments that a refused call's result quotes


def api_of(target: Target) -> str:
    vendor = target.name.rpartition("-")[2]
    return vendor if vendor in ("anthropic", "bedrock", "gateway") else "chat"


def with_recorder(target: Target) -> Target:
    """The target with an agent that records each run of a tool."""
    base = target.variant.partition("+")[0]
    (agent,) = RECORDERS.glob(f"{base.replace('-', '_')}.*")
    return replace(target, agent=agent)


@pytest.fixture(scope="session")
def recorder(
    target: Target, replay: Replay, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    fleet = Fleet(with_recorder(target), tmp_path_factory.mktemp("recorder"), replay.origin)
    yield fleet.fresh(SESSION_CAPACITY=1000)
    fleet.stop()


class Row:
    """A conversation about one transcript, and its faults."""

    def __init__(self, server: Server, replay: Replay, transcript: Transcript) -> None:
        self.server = server
        self.transcript = transcript
        self.expected = transcript.expected
        self.nonce = uuid.uuid4().hex
        self.session = f"replayed-{self.nonce}"
        self.said("HELLO")
        reply = self.said("CASE", f"{transcript.api}/{transcript.name}")
        after = self.said("NEXT")
        self.requests = replay.of(self.nonce)
        self.faults = [
            *_in_reply(self.expected, reply),
            *_in_runs(self.expected, self.runs()),
            *_in_requests(transcript, self.requests),
        ]
        if after.status != 200:
            self.faults.append(f"the next turn: {after.status} {after.error}")

    def said(self, kind: str, name: str = "") -> Reply:
        prompt = {"prompt": f"{kind}:{name}:{self.nonce}"}
        return self.server.post(prompt, {SESSION: self.session, **JSON})

    def runs(self) -> list[Call]:
        path = self.server.folder / "runs"
        lines = path.read_text("utf-8").splitlines() if path.exists() else []
        runs = [json.loads(line) for line in lines if self.session in line]
        return [[run["tool"], _given(run["input"])] for run in runs]

    @property
    def report(self) -> str:
        return f"{self.transcript.name}: {'; '.join(self.faults)}"


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _in_reply(expected: Expected, reply: Reply) -> Iterator[str]:
    is_ok = reply.status == 200
    wants_reply = expected.ok or expected.reply is not None or expected.tools is not None
    if wants_reply and not is_ok:
        yield f"the turn failed: {reply.error}"
    if is_ok and "waiting" in reply.json:
        yield "the turn waits"
    elif expected.reply is not None and is_ok and reply.text != expected.reply:
        yield f"the reply is {reply.text!r}"
    if expected.error and is_ok:
        yield f"the turn completed: {reply.text!r}"
    if isinstance(expected.error, str) and not is_ok and reply.error != expected.error:
        yield f"the error is {reply.error}, not {expected.error}"


def _in_runs(expected: Expected, runs: list[Call]) -> Iterator[str]:
    ran = _counted(runs)
    if expected.sent is not None:
        if more := ran - _counted(expected.sent):
            yield f"the model did not ask for {[*more]}"
        return
    wanted = _counted(expected.tools or [] if expected.ran is None else expected.ran)
    if more := ran - wanted:
        yield f"the model did not ask for {[*more]}"
    if less := wanted - ran:
        yield f"did not run: {[*less]}"


def _counted(calls: list[Call]) -> Counter[str]:
    return Counter(json.dumps(call, sort_keys=True, ensure_ascii=False) for call in calls)


def _in_requests(transcript: Transcript, requests: list[Request]) -> Iterator[str]:
    reasons = [reason for request in requests for reason in request.reasons]
    if reasons:
        yield f"refused: {reasons[0]}"
    tools = transcript.expected.tools
    calls = [*_calls(requests).values()]
    if tools is not None and calls != tools:
        yield f"the calls in the history are {calls}"
    if transcript.raw:
        if calls != [["delete_orders", {}]]:
            yield f"the calls in the history are {calls}"
        results = _results(requests[-1].body)
        quoted = transcript.raw[:QUOTED]
        is_quoted = quoted in results or json.dumps(quoted)[1:-1] in results
        if REFUSED not in results or not is_quoted:
            yield f"the model is told {results!r}"


def _calls(requests: list[Request]) -> dict[str, Call]:
    """The calls in the history of a conversation, by id."""
    calls: dict[str, Call] = {}
    for request in requests:
        for message in request.body.get("messages") or request.body["prompt"]:
            for call in message.get("tool_calls") or []:
                function = call["function"]
                calls[call["id"]] = [function["name"], _parsed(function["arguments"])]
            content = message.get("content")
            for block in content if isinstance(content, list) else []:
                use = block.get("toolUse") or block
                if block.get("type") == "tool_use" or "toolUse" in block:
                    calls[use.get("id") or use["toolUseId"]] = [use["name"], use["input"]]
                elif block.get("type") == "tool-call":
                    calls[block["toolCallId"]] = [block["toolName"], block["input"]]
    return calls


def _parsed(arguments: Any) -> Any:
    try:
        return json.loads(arguments)
    except (TypeError, ValueError):
        return arguments


def _results(body: dict[str, Any]) -> str:
    """The results of tools in a request, as one text."""
    texts = []
    for message in body.get("messages") or body["prompt"]:
        content = message.get("content")
        if message["role"] == "tool" and "messages" in body:
            texts.append(text_of(content))
        for block in content if isinstance(content, list) else []:
            if block.get("type") == "tool-result":
                texts.append(text_of(block["output"]))
            elif block.get("type") == "tool_result" or "toolResult" in block:
                texts.append(text_of([block]))
    return "\n".join(texts)


def in_log(expected: Expected, log: str) -> Iterator[str]:
    """Yield what is wrong with the lines of a conversation in the log."""
    lines = [line for line in log.splitlines() if "WARNING" in line or "ERROR" in line]
    refused = [line for line in lines if LOGGED in line]
    if expected.warnings is None:
        return
    if len(refused) != expected.warnings:
        yield f"{len(refused)} warnings of refused calls: {refused[:2]}"
    if expected.warnings and len(lines) > expected.warnings:
        yield f"more warnings: {[line for line in lines if line not in refused][:2]}"


def test_recorded_replies_of_providers(recorder: Server, replay: Replay, target: Target) -> None:
    """A row that fails is a line of the message, with its reason."""
    replayed = transcripts(api_of(target))
    failures = []
    for transcript in replayed:
        before = len(recorder.log)
        row = Row(recorder, replay, transcript)
        row.faults += in_log(row.expected, recorder.log[before:])
        if row.faults:
            failures.append(row.report)
    if failures:
        count = f"{target.name}: {len(failures)} of {len(replayed)} rows fail"
        pytest.fail("\n".join([count, *failures]), pytrace=False)
