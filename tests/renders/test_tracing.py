"""Traces of rendered agents, at a receiver of OTLP over HTTP: what is sent, and what never is."""

import hashlib
import os
import re
import shutil
import subprocess
import threading
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from tests.conformance.chat import CANARY, Chat
from tests.conformance.prompt_cache import Usage
from tests.conformance.provider import PATIENCE, Provider
from tests.conformance.server import Server
from tests.conformance.steps import HANG, Call, Hold, Refuse, Think
from tests.conformance.targets import (
    TARGETS,
    Target,
    chat_completions,
    converse,
    with_own_agent,
)
from tests.conformance.wires import DETAIL
from tests.installed import NODE
from tests.stores.agents import Home, StoreFleet, command
from tests.stores.proxy import Proxy
from tests.stores.servers import wait_for
from tests.stores.stores import Backing
from tests.support.files import PDF, png, sent
from tests.support.rows import collected

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
SWITCH = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
# Both frameworks and both languages every day; the others differ in nothing that is tried here.
USUAL = {"strands-typescript", "vercel-python"}

VENDORS: dict[Any, str] = {converse: "aws.bedrock", chat_completions: "openai"}
QUICK = {"OTEL_BSP_SCHEDULE_DELAY": "50", "OTEL_METRIC_EXPORT_INTERVAL": "300"}
QUICK["OTEL_METRIC_EXPORT_TIMEOUT"] = "300"  # Node's is not longer than the interval

pytestmark = pytest.mark.slow


@dataclass
class Span:
    name: str
    trace: str
    id: str
    parent: str
    failed: bool
    attributes: dict[str, Any]
    links: list[str]  # the ids of other spans
    text: str  # all of it, as text


@dataclass
class Point:
    attributes: dict[str, Any]
    value: float  # the count of a histogram
    sum: float


@dataclass
class Receiver:
    """Takes what exporters send."""

    spans: list[Span] = field(default_factory=list)
    # As last sent by each process, by the name of the metric.
    metrics: dict[str, dict[str, list[Point]]] = field(default_factory=dict)
    origin: str = ""
    resource: dict[str, str] = field(default_factory=dict)  # of the process that sent last

    def take(self, body: bytes) -> None:
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            sent = resource.resource.attributes
            self.resource = {it.key: it.value.string_value for it in sent}
            for scope in resource.scope_spans:
                self.spans += [read(span) for span in scope.spans]

    def measure(self, body: bytes) -> None:
        for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
            instance = values_of(resource.resource.attributes)["service.instance.id"]
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    points = metric.histogram.data_points or metric.sum.data_points
                    points = points or metric.gauge.data_points
                    sent = self.metrics.setdefault(metric.name, {})
                    sent[instance] = [point_of(one) for one in points]

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


@dataclass
class Counts:
    """What is measured from now on."""

    receiver: Receiver

    def __post_init__(self) -> None:
        time.sleep(0.6)  # what was counted before is sent
        self._before = {name: {**sent} for name, sent in self.receiver.metrics.items()}

    def wait(self, name: str, count: int, *has: str, **attributes: str) -> float:
        """Wait until points with these attributes, and those called `has`, count so many more.

        Return the sum of what was measured.
        """
        deadline = time.monotonic() + PATIENCE
        while True:
            sent = self.receiver.metrics.get(name, {})
            now = matching(sent, has, attributes)
            before = matching(self._before.get(name, {}), has, attributes)
            if now and sum(it.value for it in now) - sum(it.value for it in before) == count:
                return sum(it.sum for it in now) - sum(it.sum for it in before)
            assert time.monotonic() < deadline, f"{name} did not count {count}: {now}"
            time.sleep(0.02)


def matching(
    sent: dict[str, list[Point]], has: tuple[str, ...], wanted: dict[str, str]
) -> list[Point]:
    keys = {*wanted, *has}
    return [
        point
        for points in sent.values()
        for point in points
        if keys == {*point.attributes} - {"gen_ai.response.model"}
        and wanted.items() <= point.attributes.items()
    ]


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


def values_of(attributes: Any) -> dict[str, Any]:
    return {it.key: getattr(it.value, it.value.WhichOneof("value")) for it in attributes}


def point_of(point: Any) -> Point:
    values = values_of(point.attributes)
    if hasattr(point, "count"):
        return Point(values, point.count, point.sum)
    return Point(values, point.as_int or point.as_double, 0)


def read(span: Any) -> Span:
    values = values_of(span.attributes)
    ids = span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex()
    links = [link.span_id.hex() for link in span.links]
    return Span(span.name, *ids, span.status.code == 2, values, links, str(span))


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = body_of(self)
            {"/v1/traces": receiver.take, "/v1/metrics": receiver.measure}[self.path](body)
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
        quick = {**QUICK, **settings}
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


def test_a_turn_is_a_span_with_its_calls_as_children(
    server: Server, target: Target, provider: Provider, receiver: Receiver
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
        "gen_ai.response.model": "test-model",
        "turn.tokens_cached": 4,
    }
    calls = [one for one in below if one.attributes.get("gen_ai.operation.name") == "chat"]
    assert len(calls) == 2
    for call, reason in zip(calls, ("tool", "stop"), strict=True):
        assert call.name == "chat test-model"
        assert call.attributes["gen_ai.request.model"] == "test-model"
        assert call.attributes["gen_ai.provider.name"] == VENDORS[target.provider]
        assert reason in str(call.attributes["gen_ai.response.finish_reasons"]).replace(
            "end", "stop"
        )
        if target.provider is chat_completions:  # Converse says nothing of the model
            assert call.attributes["gen_ai.response.model"] == "test-model"
        assert call.attributes["gen_ai.usage.input_tokens"] > 0
        assert call.attributes["gen_ai.usage.output_tokens"] > 0
    (agent,) = (one for one in below if one.name == "invoke_agent my-agent")
    assert agent.attributes["gen_ai.agent.name"] == "my-agent"
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


def test_model_calls_and_turns_are_measured(
    server: Server, target: Target, provider: Provider, receiver: Receiver
) -> None:
    counted = Counts(receiver)
    # Not short: a random id of a metric may contain three letters.
    actor = "grace-hopper"
    chat = Chat(server, provider, actor=actor)
    chat.say("Count.", [Call("word_count", {"text": f"{CANARY} b"})], ["Two."])
    chat.say("Hello.", [Refuse(401)])
    model = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": VENDORS[target.provider],
        "gen_ai.request.model": "test-model",
    }
    counted.wait("gen_ai.client.operation.duration", 2, **model)
    counted.wait("gen_ai.client.operation.duration", 1, "error.type", **model)
    for kind in ("input", "output"):
        tokens = counted.wait(
            "gen_ai.client.token.usage", 2, **model, **{"gen_ai.token.type": kind}
        )
        assert tokens > 0
    counted.wait("agent.turn.duration", 1, **{"turn.outcome": "committed"})
    counted.wait("agent.turn.duration", 1, **{"turn.outcome": "model_failed"})
    counted.wait("agent.turn.wait", 2)
    for state in ("waiting", "running"):
        counted.wait("agent.turns", 0, **{"agent.turn.state": state})
    names = {"agent.turn.duration", "agent.turn.wait", "agent.turns"}
    names |= {"gen_ai.client.operation.duration", "gen_ai.client.token.usage"}
    # The server of another test with a memory may still send to this receiver.
    assert {*receiver.metrics} - {"agent.memory.waiting"} == names
    for secret in (CANARY, actor, chat.session):
        assert secret not in str(receiver.metrics)


def test_no_span_contains_reasoning(server: Server, provider: Provider, receiver: Receiver) -> None:
    chat = Chat(server, provider)
    chat.say("Think.", [Think(f"{CANARY} is my guess."), "Yes."])
    turn, below = receiver.turn(chat.session)
    assert below
    assert not [span for span in (turn, *below) if CANARY in span.text]


def test_a_turn_that_waits_for_another_is_counted_as_waiting(
    server: Server, provider: Provider, receiver: Receiver
) -> None:
    counted, gate = Counts(receiver), threading.Event()
    chat = Chat(server, provider)
    first = chat.start("First.", [Hold(gate), "One."])
    counted.wait("agent.turns", 1, **{"agent.turn.state": "running"})
    second = chat.start("Second.", ["Two."])
    counted.wait("agent.turns", 1, **{"agent.turn.state": "waiting"})
    gate.set()
    assert [first.reply().turn, second.reply().turn] == [1, 2]
    assert counted.wait("agent.turn.wait", 2) > 0


def test_recall_is_in_the_turn_and_recording_links_to_it(
    target: Target, provider: Provider, receiver: Receiver, tmp_path: Path
) -> None:
    target = replace(target, answers=(*target.answers, ("long_term_memory", "agentcore")))
    for kind in ("collections", "agents", "iam"):
        shutil.copytree(target.project() / kind, tmp_path / kind)
    environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.origin, **QUICK}
    server = Server(target, tmp_path, None, environment)
    try:
        counted = Counts(receiver)
        chat = Chat(server, provider, actor="ada")
        assert chat.say("My name is Ada.").status == 200
        counted.wait("agent.memory.waiting", 0, **{"agent.memory.store": "memories"})
        turn, _ = receiver.turn(chat.session)

        def recalls() -> list[Span]:  # one that was late ends after its turn
            _, below = receiver.turn(chat.session)
            return [one for one in below if one.name == "memory.retrieve"]

        wait_for("a recall below the turn", recalls)
        deadline = time.monotonic() + PATIENCE
        while not (sent := [one for one in receiver.spans if turn.id in one.links]):
            assert time.monotonic() < deadline, "no recording links to the turn"
            time.sleep(0.02)
    finally:
        server.stop()
    (recording,) = sent
    assert recording.name == "memory.create_event"
    assert recording.trace != turn.trace


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
        home = Home(target, backing, tmp_path, "valkey")
        proxy = Proxy(home.store.address)
        stack.callback(proxy.refuse)
        address = ("127.0.0.1", proxy.port)
        server = fleet.start(home, address, offline=False, STORE_TIMEOUT_SECONDS=1, **variables)
        chat = Chat(server, provider)
        assert chat.say("Hello.", ["Hi."]).status == 200
        turn, below = receiver.turn(chat.session)
        calls = {one.name: one.parent for one in below if one.name.startswith("session_store.")}
        assert calls == {"session_store.load": turn.id, "session_store.save": turn.id}
        proxy.refuse()
        lost = Chat(server, provider)
        assert lost.say("Hello.").status == 503
        turn, _ = receiver.turn(lost.session)
        assert turn.failed
        assert "turn.number" not in turn.attributes  # nobody has read it


def test_a_failed_turn_has_the_type_of_its_error(
    server: Server, provider: Provider, receiver: Receiver
) -> None:
    chat = Chat(server, provider)
    chat.say("Hello.", [Refuse(401)])
    turn, below = receiver.turn(chat.session)
    assert turn.failed
    assert turn.attributes["error.type"] == turn.attributes["turn.outcome"] == "model_failed"
    assert "gen_ai.response.model" not in turn.attributes
    kinds = {one.attributes["error.type"] for one in below if one.failed}
    assert kinds
    assert kinds & {"Object", "Error", "Exception"} == set()  # the class of each is known
    for one in [turn, *below]:
        assert CANARY not in one.text
        assert DETAIL not in one.text
    assert {*lines_of(server, chat)} == {turn.trace}


def test_a_client_that_leaves_is_no_error_of_the_model(
    server: Server, target: Target, provider: Provider, receiver: Receiver
) -> None:
    chat = Chat(server, provider)
    exchange = chat.start("Hello.", ["Well, ", HANG])
    assert exchange.event() == ("message", "Well, ")
    exchange.leave()
    chat.gone("Hello.")

    def names() -> set[str]:
        return {one.name for one in receiver.turn(chat.session)[1]}

    # In Python Strands leaves the span of the model call open, and ends that of the agent.
    calls = set() if target.name == "strands-python" else {"chat test-model"}
    wait_for("the end of what was begun", lambda: {"invoke_agent my-agent"} | calls <= names())
    _, below = receiver.turn(chat.session)
    # In Python the end of a turn that takes too long is the same cancellation for the AI SDK.
    expected = ["CancelledError"] if target.name == "vercel-python" else []
    failed = [one.attributes["error.type"] for one in below if one.failed]
    assert sorted({*failed}) == expected


def test_a_model_call_that_takes_too_long_is_an_error(
    start: Any, target: Target, provider: Provider, receiver: Receiver
) -> None:
    settings = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.origin, "TURN_TIMEOUT_SECONDS": "1"}
    chat = Chat(start(**settings), provider)
    chat.start("Hello.", ["Well, ", HANG]).reply()
    turn, _ = receiver.turn(chat.session)
    assert turn.attributes["error.type"] == "turn_timeout"

    def has_failed() -> bool:
        return any(one.failed for one in receiver.turn(chat.session)[1])

    if target.name != "strands-python":  # which leaves the span of the model call open
        wait_for("an error of the model call", has_failed)


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


# The start of the tool's GIF, as base64, as text and as numbers.
GIF = re.compile(r'R0lGOD|GIF89a|\b71,\s*73,\s*70\b|"0\W*:\s*71\b|47494638')


def test_exported_content_names_files_without_their_bytes(
    start: Any, target: Target, provider: Provider, receiver: Receiver
) -> None:
    variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.origin, SWITCH: "true"}
    chat = Chat(start(with_own_agent(target), **variables), provider)
    files = [
        ("photo.png", "image/png", png() + bytes(range(256)) * 200),
        ("report.pdf", "application/pdf", PDF + bytes(range(256)) * 200),
        ("notes.md", "text/markdown", b"Short."),
    ]
    provider.script(f"Look.{chat.tag}", [Call("photo", {})], ["I see."])
    first = {"prompt": f"Look.{chat.tag}", "files": [sent(*file) for file in files[:2]]}
    assert chat.post(first).turn == 1
    assert chat.post({"prompt": f"Read.{chat.tag}", "files": [sent(*files[2])]}).turn == 2
    spans = [
        it for number in (1, 2) for turn in [receiver.turn(chat.session, number)] for it in turn[1]
    ]
    for span in spans:
        assert not GIF.search(span.text), span.text
        assert b64encode(b"Short.").decode() not in span.text
        assert len(span.text) < 30_000, span.text[:10_000]
    prompts = "\n".join(span.attributes.get("gen_ai.input.messages", "") for span in spans)
    assert f"Look.{chat.tag}" in prompts
    assert "gif" in prompts, "the kind of the tool's file"
    for _, media_type, content in files if target.name.startswith("vercel") else []:
        form = rf'"mime_type": ?"{media_type}", ?"content": ?"\[{len(content)} bytes\]"'
        assert re.search(form, prompts), prompts


@pytest.mark.full
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
    assert server.log.count("Metrics: http://127.0.0.1:9 is not accepting metrics;") == 1
    assert "secret" not in server.log


def test_an_endpoint_that_is_down_does_not_delay_the_end(start: Any, provider: Provider) -> None:
    server = start(OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9")
    assert Chat(server, provider).say("Hello.", ["Hi."]).status == 200
    server.signal()
    assert server.exit_code(within=4) == 0


def test_chat_ends_while_the_endpoint_is_down(target: Target, tmp_path: Path) -> None:
    variables = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9",
    }
    chat = command(target.project(), "chat")
    seconds = []
    for is_disabled in ("true", "false"):
        began = time.monotonic()
        own = {**variables, "OTEL_SDK_DISABLED": is_disabled}
        said = subprocess.run(
            chat, cwd=tmp_path, env=own, input="Hello.\n", capture_output=True, text=True
        )
        assert "Now you said:" in said.stdout
        seconds.append(time.monotonic() - began)
    assert seconds[1] < 5 + 2 * seconds[0]


@pytest.mark.parametrize("is_disabled", [False, True])
def test_nothing_is_exported_without_the_variable_or_where_the_sdk_is_disabled(
    start: Any, provider: Provider, receiver: Receiver, is_disabled: bool
) -> None:
    disabled = {"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.origin}
    server = start(**disabled if is_disabled else {})
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
from my_agent.main import cli
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
