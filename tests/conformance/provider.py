"""A loopback model provider: strict about what it is sent, and it fails in every way on demand.

A script belongs to one prompt: when the last user text is that prompt, its steps are played one
call after another. A prompt without a script (or whose steps are used up) is echoed.
"""

import json
import re
import select
import socket
import threading
import time
import urllib.parse
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.conformance.prompt_cache import PromptCache, Usage
from tests.conformance.refusals import refusals
from tests.conformance.steps import (
    Call,
    Drip,
    End,
    Fail,
    Flood,
    Hold,
    Intervene,
    Refuse,
    Sign,
    Step,
    Think,
    stays,
)
from tests.conformance.vendor_wires import Converse, Gateway, Messages
from tests.conformance.wires import DETAIL, ChatCompletions, Entry, InvalidError, Wire

WIRES: list[type[Wire]] = [ChatCompletions, Messages, Converse, Gateway]
TAG = re.compile(r" canary\d+$")  # ends every prompt of a Chat and tells which Chat it was
TRANSCRIPT = "<transcript>"  # begins a prompt that asks for a summary
TOO_LONG = Refuse(
    400, "context_length_exceeded", text="This model's maximum context length is 8192 tokens."
)
FILE = re.compile("iVBORw0KGgo|R0lGOD|JVBERi0")  # the base64 of PNG, GIF and PDF
PATIENCE = 60.0  # seconds until a test that waits for something says what never came


@dataclass
class ModelCall:
    """One call that reached the provider, and what became of it."""

    history: list[Entry]
    request: dict[str, Any] = field(default_factory=dict, repr=False)  # as the vendor received it
    usage: Usage = field(default_factory=Usage)
    began: float = field(default_factory=time.monotonic)
    ended: float | None = None
    outcome: str = "running"  # then: finished, gone (its client left), refused, broken
    chunks: int = 0

    @property
    def size(self) -> int:
        """How many characters the request tells."""
        parts = [part for _, *rest in self.history for part in rest]
        return sum(len(part if isinstance(part, str) else json.dumps(part)) for part in parts)

    @property
    def model(self) -> str:
        """The model that the request names; Bedrock's stands in a path."""
        named = str(self.request.get("model", ""))
        found = re.fullmatch("/model/([^/]+)/.*", named)
        return urllib.parse.unquote(found[1]) if found else named

    @property
    def prompt(self) -> str:
        return next((text for role, text, *_ in reversed(self.history) if role == "user"), "")


class Provider:
    """The server, its scripts and its records."""

    def __init__(self) -> None:
        self.calls: list[ModelCall] = []
        self.problems: list[str] = []
        self.cache = PromptCache()
        self.usage = Usage()  # of each call of another model than those that are `priced`
        self.summarize: Callable[[str], Step] = facts_of
        self.window: int | None = None  # characters of a request that the models can read
        self.too_long: Step = [TOO_LONG]  # what longer ones get
        self.unread: Step | None = None  # what requests with an image or a PDF get
        self.key: str | None = None  # the only valid one; None: each wire looks itself
        self.models: set[str] | None = None  # the only ones that exist
        self._scripts: dict[str, deque[Step]] = {}
        self._endless: dict[str, Step] = {}
        self._changed = threading.Condition()
        self._http = _Server(("127.0.0.1", 0), _Handler)
        self._http.provider = self
        self.origin = f"http://127.0.0.1:{self._http.server_port}"
        threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        """End it. Raises AssertionError if it refused a request: what fails open hides that."""
        self._http.shutdown()
        self._http.server_close()
        assert self.problems == []

    def forget(self) -> None:
        """Drop the records of calls: with those of a whole run, a process would be large."""
        with self._changed:
            self.calls.clear()

    def script(self, prompt: str, *steps: Step, endless: bool = False) -> None:
        """Play these steps for this prompt; `endless` repeats the last one for ever."""
        with self._changed:
            self._scripts[prompt] = deque(steps)
            self._endless.pop(prompt, None)
            if endless:
                self._endless[prompt] = steps[-1]

    def calls_for(self, *prompts: str) -> list[ModelCall]:
        with self._changed:
            return [call for call in self.calls if call.prompt in prompts]

    def wait(self, what: str, condition: Callable[[], bool]) -> None:
        """Wait until the condition holds; it is looked at after every change."""
        deadline = time.monotonic() + PATIENCE
        with self._changed:
            while not condition():
                left = deadline - time.monotonic()
                if left <= 0:
                    raise AssertionError(f"within {PATIENCE:g} s there was never {what}")
                self._changed.wait(left)

    def summaries(self) -> list[ModelCall]:
        """The calls that ask for the summary of a transcript."""
        with self._changed:
            return [call for call in self.calls if call.prompt.startswith(TRANSCRIPT)]

    def begin(self, history: list[Entry], request: dict[str, Any]) -> tuple[ModelCall, Step]:
        """Record a call and return its steps; a model named `priced` counts its tokens."""
        call = ModelCall(history, request, self.usage)
        with self._changed:
            if "priced" in request["model"] and "messages" in request:  # the gateway's has a prompt
                call.usage = self.cache.use(request)
            self.calls.append(call)
            steps = self._scripts.get(call.prompt)
            if self.window is not None and call.size > self.window:
                step = self.too_long
            elif self.unread is not None and FILE.search(repr(request)):
                step = self.unread
            elif steps:
                step = steps[0] if stays(steps[0]) else steps.popleft()
            else:
                step = self._endless.get(call.prompt) or self._reply(call.prompt)
            self._changed.notify_all()
        return call, step

    def _reply(self, prompt: str) -> Step:
        return self.summarize(prompt) if prompt.startswith(TRANSCRIPT) else _echo(prompt)

    def step_of(self, call: ModelCall, step: Step) -> Step:
        """The step for the model of a call, scripted for "model: prompt", or this one."""
        with self._changed:
            steps = self._scripts.get(f"{call.model}: {call.prompt}")
            if not steps:
                return step
            return steps[0] if stays(steps[0]) else steps.popleft()

    def end(self, call: ModelCall, outcome: str) -> None:
        with self._changed:
            call.outcome, call.ended = outcome, time.monotonic()
            self._changed.notify_all()

    def refuse(self, problem: str) -> None:
        with self._changed:
            self.problems.append(problem)
            self._changed.notify_all()


def facts_of(transcript: str) -> Step:
    """A summary that carries the words on which a test relies."""
    facts = re.findall(r"fact-[\w-]+", transcript)
    return ["The facts: ", " ".join(facts) or "none", "."]


def _echo(prompt: str) -> Step:
    return ["You said: ", TAG.sub("", prompt)]


class _GoneError(Exception):
    """The client closed its connection."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    provider: Provider

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # a client that leaves is a scenario here, not an accident


class _Handler(BaseHTTPRequestHandler):
    """One connection of a vendor client."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_POST(self) -> None:
        provider = self.server.provider
        body = self._body()
        wire = next((wire() for wire in WIRES if re.fullmatch(wire.path, self.path)), None)
        if wire is None:
            provider.refuse(f"no such path: {self.path}")
            return self._answer(404, b"{}")
        try:
            headers = {name.lower(): value for name, value in self.headers.items()}
            if provider.key:
                sent = headers.get("x-api-key") or headers.get("authorization", "")
                if not re.search(rf"(^|[ =]){provider.key}(/|$)", sent):
                    wrong = wire.refusal(f"Invalid key: {sent}", None)
                    return self._answer(403 if wire.api == "bedrock" else 401, wrong)
            history = wire.read(headers, body)
            reasons = refusals(wire.api, json.loads(body))
            if reasons:
                raise InvalidError("; ".join(reasons))
        except InvalidError as problem:
            provider.refuse(str(problem))
            return self._answer(400, wire.refusal(f"{DETAIL}: {problem}", None))
        # Bedrock and the gateway name the model outside the body.
        model = self.headers.get("ai-language-model-id") or self.path
        call, step = provider.begin(history, {"model": model, **json.loads(body)})
        step = provider.step_of(call, step)
        if provider.models and call.model not in provider.models:
            step = [Refuse(404, text=f"The model {call.model} does not exist.")]
        wire.tokens = call.usage
        self.started = False
        outcome = "broken"
        try:
            outcome = self._play(wire, call, step)
        except (_GoneError, OSError):
            outcome = "gone"
            self.close_connection = True
        finally:
            provider.end(call, outcome)

    def _play(self, wire: Wire, call: ModelCall, step: Step) -> str:
        quote = f"{DETAIL}: cannot answer {call.prompt!r}"  # real providers quote prompts, too
        tools = 0
        for part in step:
            match part:
                case str():
                    self._stream(wire, call, wire.text(part))
                case Call():
                    call_id = part.id or f"call_{len(call.history)}_{tools}"
                    self._stream(wire, call, wire.call(tools, call_id, part.name, part.text()))
                    tools += 1
                case Think():
                    self._stream(wire, call, wire.think(part.text))
                case Fail():
                    self._stream(wire, call, wire.failure(quote, part.kind))
                    self._finish()
                    return "broken"
                case Sign(name="open"):
                    self._begin(wire)
                case Hold():
                    while not part.gate.is_set():
                        self._listen(0.02)
                case Drip():
                    for _ in range(part.count):
                        self._stream(wire, call, wire.text("."))
                        self._listen(part.every_ms / 1000)
                case Flood():
                    chunk = wire.text("~" * part.size)
                    for _ in range(part.count):
                        self._stream(wire, call, chunk)
                case Refuse(status=200):
                    self._stream(wire, call, wire.refusal_in_stream(part.text or quote, part.code))
                    self._finish()
                    return "refused"
                case Refuse():
                    body = wire.refusal(part.text or quote, part.code)
                    self._answer(part.status, body, part.after_ms, part.after)
                    return "refused"
                case Intervene():
                    vars(wire)["trace"] = part.trace
                    self._stream(wire, call, wire.finish("guardrail_intervened"))
                    return self._finish()
                case End():
                    self._stream(wire, call, wire.finish(part.reason))
                    return self._finish()
                case Sign(name="junk"):
                    self._stream(wire, call, wire.text("a~~").replace(b"~~", b"\xff\xe2\x82"))
                case Sign(name="error"):
                    self._stream(wire, call, wire.error(quote))
                    self._finish()
                    return "broken"
                case Sign(name="garble"):
                    self._stream(wire, call, f"data: {{{quote}\n\n".encode())
                    self._finish()
                    return "broken"
                case Sign(name="fade"):
                    self._stream(wire, call, b"")
                    self._finish()
                    return "broken"
                case Sign():
                    if part.name == "cut":
                        self._stream(wire, call, b"")
                    self.close_connection = True
                    return "broken"
        self._stream(wire, call, wire.finish("tool" if tools else "stop"))
        return self._finish()

    def _stream(self, wire: Wire, call: ModelCall, data: bytes) -> None:
        if not self.started:
            self._begin(wire)
            data = wire.start() + data
        if data:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        call.chunks += 1

    def _begin(self, wire: Wire) -> None:
        self.send_response(200)
        self.send_header("Content-Type", wire.content_type)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.started = True

    def _finish(self) -> str:
        self.wfile.write(b"0\r\n\r\n")
        return "finished"

    def _answer(self, status: int, body: bytes, after_ms: int = 20, after: int = 0) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        name, wait = ("Retry-After", after) if after else ("Retry-After-Ms", after_ms)
        self.send_header(name, str(wait))
        if after and self.path.endswith("/converse-stream"):
            self.send_header("X-Amz-Retry-After", str(1000 * after))  # clients of AWS heed no other
        self.end_headers()
        self.wfile.write(body)

    def _listen(self, seconds: float) -> None:
        """Wait, and raise as soon as the client has closed its side."""
        readable, _, _ = select.select([self.connection], [], [], seconds)
        if readable and not self.connection.recv(1, socket.MSG_PEEK):
            raise _GoneError

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            size = int(self.headers.get("Content-Length", 0))
            body = self.rfile.read(size)
            if len(body) < size:
                raise ConnectionResetError("a client was killed while it sent its request")
            return body
        body = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body
