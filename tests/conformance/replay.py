"""A loopback provider that replays transcripts, and refuses what strict providers refuse.

The prompt names the transcript: `CASE:api/name:nonce` gets its answers, one for each call of the
model, and any other prompt a plain reply. The nonce tells which conversation a request is of.
"""

import json
import re
import threading
from collections import Counter
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.conformance.refusals import refusals, text_of
from tests.conformance.transcripts import WIRES, Answer, Transcript, transcripts

TAG = re.compile(r"(HELLO|CASE|NEXT):([^:]*):(\w+)")
MODEL = re.compile(r"/model/([^/]+)/.*")  # stands in the address of Bedrock
REASONING = re.compile(
    r'"(thinking|redacted_thinking|reasoningContent|reasoning_content|reasoning_details'
    r'|thought_signature)"|"type": "reasoning"'
)


@dataclass(frozen=True)
class Request:
    nonce: str
    body: dict[str, Any]
    reasons: list[str]  # for which it was refused
    model: str


class Replay:
    """The server, and the requests that it got."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self._steps: Counter[str] = Counter()
        self._models: dict[str, str] = {}  # which answered the transcript of a conversation
        self._lock = threading.Lock()
        self._http = _Server(("127.0.0.1", 0), _Handler)
        self._http.replay = self
        self.origin = f"http://127.0.0.1:{self._http.server_port}"
        threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()

    def of(self, nonce: str) -> list[Request]:
        """The requests of a conversation."""
        with self._lock:
            return [request for request in self.requests if request.nonce == nonce]

    def answer(self, api: str, model: str, body: dict[str, Any]) -> Answer:
        """Record a request and return its answer."""
        tags = _tags(api, body)
        kind, _, nonce = tags[-1] if tags else ("", "", "")
        case = next((name for kind, name, _ in tags if kind == "CASE"), "")
        transcript = next((it for it in transcripts(api) if f"{api}/{it.name}" == case), None)
        with self._lock:
            if kind == "CASE" and transcript:
                self._models.setdefault(nonce, model)
            is_own = transcript is not None and self._models.get(nonce) == model
            reasons = self._reasons(api, body, transcript if is_own else None)
            self.requests.append(Request(nonce, body, reasons, model))
            if reasons:
                return _refusal(api, "; ".join(reasons))
            if is_own and transcript and kind == "CASE":
                step = self._steps[nonce]
                if step < len(transcript.answers):
                    answer = transcript.answers[step]
                    self._steps[nonce] += not answer.stays
                    return answer
        return _plain(api, "A plain reply.")

    def _reasons(self, api: str, body: dict[str, Any], transcript: Transcript | None) -> list[str]:
        """The reasons for which the model that gave these answers refuses a request."""
        if transcript is None:
            found = REASONING.search(json.dumps(body.get("messages") or body.get("prompt")))
            others = [f"reasoning of another model: {found[0]}"] if found else []
            return refusals(api, body) + others
        return refusals(api, body, own=transcript.own) + _missing(transcript, body)


def _tags(api: str, body: dict[str, Any]) -> list[tuple[str, str, str]]:
    """The tags of the users' texts, in order."""
    messages = body["prompt"] if api == "gateway" else body.get("messages") or []
    texts = [text_of(it.get("content")) for it in messages if it["role"] == "user"]
    return [(tag[1], tag[2], tag[3]) for text in texts for tag in TAG.finditer(text)]


def _missing(transcript: Transcript, body: dict[str, Any]) -> list[str]:
    """What this provider misses of that which it sent with a call."""
    demand = transcript.demand
    found: list[str] = []
    messages = body.get("messages") or []
    for i, message in enumerate(messages):
        if message["role"] != "assistant" or not demand:
            continue
        calls = message.get("tool_calls") or []
        if demand == "thought_signature":
            # Of parallel calls only the first has one.
            extra = calls[0].get("extra_content") if calls else {"google": {demand: True}}
            if not ((extra or {}).get("google") or {}).get(demand):
                found.append(f"Function call is missing a thought_signature, position {i}")
        elif demand == "thinking":
            content = message["content"]
            blocks = content if isinstance(content, list) else []
            kinds = [block.get("type") or next(iter(block)) for block in blocks]
            # The vendors demand it within a turn; a later turn may leave it out.
            is_last = i == len(messages) - 2 and "tool_result" in json.dumps(messages[-1])
            is_last = is_last or (i == len(messages) - 2 and "toolResult" in str(messages[-1]))
            has_call = bool({"tool_use", "toolUse"} & {*kinds})
            thinking = ("thinking", "redacted_thinking", "reasoningContent")
            if is_last and has_call and kinds[0] not in thinking:
                found.append(f"messages.{i}.content.0.type: Expected `thinking`")
        elif calls and not message.get(demand):
            found.append(f"The `{demand}` must be passed back to the API")
        elif calls and transcript.back and message[demand] != transcript.back:
            found.append(f"The `{demand}` is not as it came: {message[demand]}")
    return found


def _plain(api: str, text: str) -> Answer:
    wire = WIRES[api]()
    return Answer([wire.start() + wire.text(text) + wire.finish("stop")], wire.content_type)


def _refusal(api: str, reason: str) -> Answer:
    wire = WIRES[api]()
    headers = {"x-amzn-errortype": "ValidationException"} if api == "bedrock" else {}
    body = wire.refusal(reason, "invalid_request_error")
    return Answer([body], "application/json", 400, headers)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    replay: Replay

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # a client may leave


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_POST(self) -> None:
        body = json.loads(self._body())
        api = next(name for name, wire in WIRES.items() if re.fullmatch(wire.path, self.path))
        path = MODEL.fullmatch(self.path)
        model = (
            path[1] if path else str(body.get("model", self.headers.get("ai-language-model-id")))
        )
        answer = self.server.replay.answer(api, model, body)
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Transfer-Encoding", "chunked")
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.end_headers()
        for part in answer.parts:
            if part is None:
                self.close_connection = True
                return
            if part:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
        self.wfile.write(b"0\r\n\r\n")

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body
