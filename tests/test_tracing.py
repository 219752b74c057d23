"""Traces of rendered agents, at a receiver of OTLP over HTTP: what is sent, and what never is."""

import hashlib
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from tests.conformance.chat import CANARY, Chat
from tests.conformance.prompt_cache import Usage
from tests.conformance.provider import PATIENCE, Provider
from tests.conformance.server import Server
from tests.conformance.steps import Call, Refuse
from tests.conformance.targets import TARGETS, Target, chat_completions, converse
from tests.conformance.wires import DETAIL
from tests.installed import NODE
from tests.rows import collected
from tests.stores.agents import StoreFleet
from tests.stores.stores import Backing

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
SWITCH = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
# Both frameworks and both languages every day; the others differ in nothing that is tried here.
USUAL = {"strands-typescript", "vercel-python"}

pytestmark = pytest.mark.slow


@dataclass
class Span:
    name: str
    trace: str
    id: str
    parent: str
    failed: bool
    attributes: dict[str, Any]
    text: str  # all of it, as text


@dataclass
class Receiver:
    """Takes what exporters send."""

    spans: list[Span] = field(default_factory=list)
    origin: str = ""
    resource: dict[str, str] = field(default_factory=dict)  # of the process that sent last

    def take(self, body: bytes) -> None:
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            sent = resource.resource.attributes
            self.resource = {it.key: it.value.string_value for it in sent}
            for scope in resource.scope_spans:
                self.spans += [read(span) for span in scope.spans]

    def turn(self, session: str, count: int = 1) -> tuple[Span, list[Span]]:
        """The span of the last of so many turns, and those below it, when they have come."""
        deadline = time.monotonic() + PATIENCE
        while True:
            turns = [one for one in self.spans if one.attributes.get("session.id") == session]
            if len(turns) >= count:
                last = turns[count - 1]
                return last, [one for one in self.spans if self._is_below(one, last)]
            assert time.monotonic() < deadline, "no span of the turn came"
            time.sleep(0.02)

    def _is_below(self, span: Span, top: Span) -> bool:
        parents = {one.id: one.parent for one in self.spans}
        id = span.parent
        while id and id != top.id:
            id = parents.get(id, "")
        return id == top.id


def body_of(request: BaseHTTPRequestHandler) -> bytes:
    """The body of a request; Node's exporter sends it in chunks."""
    if length := request.headers["Content-Length"]:
        return request.rfile.read(int(length))
    body = b""
    while size := int(request.rfile.readline(), 16):
        body += request.rfile.read(size)
        request.rfile.readline()
    request.rfile.readline()
    return body


def read(span: Any) -> Span:
    values = {it.key: getattr(it.value, it.value.WhichOneof("value")) for it in span.attributes}
    ids = span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex()
    return Span(span.name, *ids, span.status.code == 2, values, str(span))


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/traces"
            receiver.take(body_of(self))
            body = ExportTraceServiceResponse().SerializeToString()
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        receiver.origin = f"http://127.0.0.1:{http.server_port}"
        threading.Thread(target=http.serve_forever, args=(0.05,), daemon=True).start()
        yield receiver
        http.shutdown()


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    with closing(Provider()) as provider:
        yield provider


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "target" in metafunc.fixturenames:
        rows = [
            pytest.param(one, id=one.name, marks=[] if one.name in USUAL else [pytest.mark.full])
            for one in map(traced, TARGETS)
        ]
        metafunc.parametrize("target", collected(metafunc.config, rows), scope="module")


def traced(target: Target) -> Target:
    """The target with traces, and the model that its plain render asks."""
    wire = converse if target.name.startswith("strands") else chat_completions
    return replace(target, variant=f"{target.name}+tracing", provider=wire)


@pytest.fixture(scope="module")
def start(
    target: Target, provider: Provider, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    servers: list[Server] = []

    def start(target: Target = target, **settings: str) -> Server:
        folder = tmp_path_factory.mktemp("agent")
        quick = {"OTEL_BSP_SCHEDULE_DELAY": "50", **settings}
        servers.append(Server(target, folder, provider.origin, quick))
        return servers[-1]

    yield start
    for server in servers:
        server.signal()
    for server in servers:
        server.stop()
        assert CANARY not in server.log


@pytest.fixture(scope="module")
def server(start: Any, receiver: Receiver) -> Server:
    server: Server = start(OTEL_EXPORTER_OTLP_ENDPOINT=receiver.origin)
    return server


def lines_of(server: Server, chat: Chat) -> list[str]:
    """The trace that each line of the log about a session names."""
    lines = [line for line in server.log.splitlines() if f"session {chat.session}: " in line]
    return [line.rpartition(" trace=")[2] for line in lines]


def test_a_turn_is_a_span_and_what_it_calls_is_below_it(
    server: Server, provider: Provider, receiver: Receiver
) -> None:
    chat = Chat(server, provider, actor="ada")
    step = [Call("word_count", {"text": f"{CANARY} b"})]
    provider.usage = Usage(1, read=2)
    chat.say("Count.", step, ["Two."], headers={"traceparent": CALLER})
    provider.usage = Usage()
    turn, below = receiver.turn(chat.session)
    assert turn.name == "turn"
    assert (turn.trace, turn.parent) == tuple(CALLER.split("-")[1:3])
    assert turn.attributes == {
        "session.id": chat.session,
        "gen_ai.conversation.id": chat.session,
        "enduser.pseudo.id": hashlib.sha256(b"ada").hexdigest(),
        "turn.number": 1,
        "turn.outcome": "committed",
        "turn.tokens_cached": 4,
    }
    calls = [one for one in below if one.attributes.get("gen_ai.operation.name") == "chat"]
    assert len(calls) == 2
    for call in calls:
        assert call.name.split()[0] == "chat"
        assert call.attributes["gen_ai.request.model"] == "test-model"
        assert call.attributes["gen_ai.usage.input_tokens"] > 0
        assert call.attributes["gen_ai.usage.output_tokens"] > 0
    (tool,) = (one for one in below if one.name == "execute_tool word_count")
    assert tool.attributes["gen_ai.tool.name"] == "word_count"
    assert not any(one.failed for one in [turn, *below])
    for one in [turn, *below]:
        assert CANARY not in one.text
        assert "helpful assistant" not in one.text
    assert lines_of(server, chat) == [turn.trace]
    for name in ("service.instance.id", "telemetry.sdk.language"):
        assert receiver.resource[name]
    assert receiver.resource["service.name"] == "my-agent"


def test_calls_of_the_session_store_are_below_the_turn(
    target: Target, provider: Provider, receiver: Receiver, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        backing = Backing(tmp_path / "backing", stack)
        fleet = StoreFleet(target, tmp_path, provider.origin, backing, "valkey")
        stack.callback(fleet.stop)
        variables: dict[str, int | str] = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.origin,
            "OTEL_BSP_SCHEDULE_DELAY": 50,
        }
        chat = Chat(fleet.fresh(offline=False, **variables), provider)
        assert chat.say("Hello.", ["Hi."]).status == 200
        turn, below = receiver.turn(chat.session)
        calls = {one.name: one.parent for one in below if one.name.startswith("session_store.")}
        assert calls == {"session_store.load": turn.id, "session_store.save": turn.id}


def test_a_failed_turn_has_the_type_of_its_error(
    server: Server, provider: Provider, receiver: Receiver
) -> None:
    chat = Chat(server, provider)
    chat.say("Hello.", [Refuse(401)])
    turn, below = receiver.turn(chat.session)
    assert turn.failed
    assert turn.attributes["error.type"] == turn.attributes["turn.outcome"] == "model_failed"
    assert any(one.failed for one in below)
    for one in [turn, *below]:
        assert CANARY not in one.text
        assert DETAIL not in one.text
    assert {*lines_of(server, chat)} == {turn.trace}


def test_no_text_of_the_model_is_exported(
    server: Server, provider: Provider, receiver: Receiver
) -> None:
    chat = Chat(server, provider)
    chat.say("Hello.", [Call("word_count", {"wrong": CANARY})], ["I see."])
    chat.say("Hello.", [Call("no_such_tool", {"text": CANARY})], ["I see."])
    chat.say("Hello.", [Call(CANARY, {"text": "a"})], ["I see."])
    for number in (1, 2, 3):
        turn, below = receiver.turn(chat.session, number)
        assert not [one for one in [turn, *below] if CANARY in one.text]


def test_content_is_exported_with_the_switch(
    start: Any, provider: Provider, receiver: Receiver
) -> None:
    server = start(**{"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.origin, SWITCH: "true"})
    chat = Chat(server, provider)
    chat.say("Count.", [Call("word_count", {"text": "a b"})], ["It is two."])
    _, below = receiver.turn(chat.session)
    prompts = [one.attributes.get("gen_ai.input.messages", "") for one in below]
    replies = [one.attributes.get("gen_ai.output.messages", "") for one in below]
    assert any(f"Count.{chat.tag}" in prompt for prompt in prompts)
    assert any("It is two." in reply for reply in replies)


def test_turns_go_on_while_the_endpoint_is_down(
    start: Any, target: Target, provider: Provider
) -> None:
    server = start(
        OTEL_EXPORTER_OTLP_ENDPOINT="http://ada:secret@127.0.0.1:9",
        # Python's exporter reads seconds, and Node's milliseconds.
        OTEL_EXPORTER_OTLP_TIMEOUT="0.2" if target.name.endswith("-python") else "200",
    )
    chat = Chat(server, provider)
    deadline = time.monotonic() + PATIENCE
    while "is not accepting spans" not in server.log:
        assert chat.say("Hello.", ["Hi."]).status == 200
        assert time.monotonic() < deadline, "nobody is warned"
    for _ in range(4):  # exports that fail, too
        assert chat.say("Hello.", ["Hi."]).status == 200
        time.sleep(0.5)
    lines = [line for line in server.log.splitlines() if "Traces: " in line]
    assert lines[0] == "Traces: contacts http://127.0.0.1:9"
    what = "Traces: http://127.0.0.1:9 is not accepting spans; turns continue"
    assert lines[1].endswith(f"WARNING {what}")
    assert len(lines) == 2
    assert "secret" not in server.log


def test_nothing_is_exported_without_the_variable(
    start: Any, provider: Provider, receiver: Receiver
) -> None:
    server = start()
    chat = Chat(server, provider)
    assert chat.say("Hello.", ["Hi."]).status == 200
    server.signal()
    server.stop()
    assert "Traces" not in server.log
    assert not [one for one in receiver.spans if one.attributes.get("session.id") == chat.session]


# Sets a provider before the agent does, as `opentelemetry-instrument` and its like do.
PYTHON = """
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
trace.set_tracer_provider(provider)
from app.main import cli
cli()
"""
NODE_MODULE = """
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-proto'
import { BatchSpanProcessor, NodeTracerProvider } from '@opentelemetry/sdk-trace-node'
const spanProcessors = [new BatchSpanProcessor(new OTLPTraceExporter())]
new NodeTracerProvider({ spanProcessors }).register()
"""


def instrumented(project: Path) -> list[str]:
    if not (project / "package.json").exists():
        return [str(project / ".venv" / "bin" / "python"), "-c", PYTHON, "serve"]
    module = project / "node_modules" / ".instrument.mjs"
    module.write_text(NODE_MODULE)
    return [str(NODE), "--import", module.as_uri(), str(project / "src" / "main.ts"), "serve"]


def test_a_provider_that_is_there_is_used_and_no_span_comes_twice(
    start: Any, target: Target, provider: Provider, receiver: Receiver
) -> None:
    server = start(
        replace(target, command=instrumented, start=subprocess.Popen),
        OTEL_EXPORTER_OTLP_ENDPOINT=receiver.origin,
    )
    chat = Chat(server, provider)
    chat.say("Count.", [Call("word_count", {"text": CANARY})], ["One."])
    turn, below = receiver.turn(chat.session)
    time.sleep(0.3)
    assert len({one.id for one in receiver.spans}) == len(receiver.spans)
    assert [one.name for one in below].count("execute_tool word_count") == 1
    assert len([one for one in below if one.name.split()[0] == "chat"]) == 2
    for one in [turn, *below]:
        assert CANARY not in one.text
