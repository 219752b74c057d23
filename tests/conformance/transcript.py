"""One conversation with the offline model, written down so that two renders can be compared.

All targets have to give the same transcript, byte for byte: what is of one run only (ids, times)
is replaced, and of the headers those are kept that the contract names.
"""

import json
import re
from typing import Any

from tests.conformance.client import ACTOR, EVENTS, JSON, KEY, SESSION, Headers, Reply
from tests.conformance.server import Server

UUID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")
TIME = re.compile(r'(?<="time_of_last_update":)\d+')
KEPT = ("Content-Type", "Allow", SESSION)

ADA = {SESSION: "ada-1", ACTOR: "ada"}
BOB = {SESSION: "bob-1"}
SAID = [
    "I am Ada.",
    "Gr\u00fc\u00dfe \U0001f40d",
    'A "quote"\nand a line.',
    "<b>&amp;</b>",
    "Tea, please.",
]

Asked = tuple[str, str, Headers, object]


def post(body: object, headers: Headers) -> Asked:
    return ("POST", "/invocations", headers, body)


REQUESTS: list[Asked] = [
    ("GET", "/ping", {}, None),
    post({"prompt": "Who are you?"}, {}),
    *(post({"prompt": text}, {**ADA, **JSON}) for text in SAID),
    post({"prompt": "What did I say?"}, {**ADA, **EVENTS, KEY: "key-1"}),
    post({"prompt": "Again."}, {**ADA, **EVENTS, KEY: "key-1"}),
    post({"prompt": "Again."}, {**ADA, **JSON, KEY: "key-1"}),
    post({"prompt": "Let me in."}, {SESSION: "ada-1", ACTOR: "bob"}),
    post({"prompt": "I am Bob."}, {**BOB, **EVENTS}),
    post({"prompt": "use word_count: one two  three\nfour"}, {**BOB, **EVENTS}),
    post({"prompt": "use word_count: one two"}, {**BOB, **JSON}),
    post({"prompt": "use word_count:"}, {**BOB, **JSON}),
    post({"prompt": "use no_such_tool: one two"}, {**BOB, **JSON}),
    post({"prompt": "  use word_count: a b\n"}, {**BOB, **JSON}),
    post({"prompt": "And what did I say?"}, {**BOB, **JSON}),
    post({"replace_turn": 3, "prompt": "use word_count: c"}, {**BOB, **JSON}),
    post({"replace_turn": 3}, {**BOB, **EVENTS}),
    post({"replace_turn": 4}, BOB),
    post({"replace_turn": 0, "prompt": "Hello."}, BOB),
    post({"fork": "bob-2", "at_turn": 2}, BOB),
    post({"prompt": "And you?"}, {SESSION: "bob-2", **JSON}),
    post({"fork": "bob-2", "at_turn": 1}, BOB),
    post({"fork": "bob-1", "at_turn": 1}, BOB),
    post({"fork": "ada-1", "at_turn": 1}, BOB),
    post({"fork": "bob-3", "at_turn": 4}, BOB),
    post({"fork": "bob-3"}, BOB),
    post({"fork": "no good", "at_turn": 1}, BOB),
    post({"fork": "bob-3", "at_turn": 1}, {}),
    post({"approve": ["call_1"]}, BOB),
    post({"end_session": True}, BOB),
    post({"replace_turn": 1}, BOB),
    post({"fork": "bob-3", "at_turn": 1}, BOB),
    post({"prompt": "Who am I?"}, {**BOB, **JSON}),
    post({"prompt": " \n"}, BOB),
    post({"prompt": 1}, BOB),
    post({}, BOB),
    post([], BOB),
    post(b"{", BOB),
    post(b'{"prompt": NaN}', BOB),
    post(b'{"prompt": "\\ud800"}', BOB),
    post({"prompt": "x" * 100_001}, BOB),
    post({"prompt": "x" * 6_291_456}, BOB),
    post({"prompt": "Hello.", "end_session": True}, BOB),
    post({"end_session": True}, {}),
    post({"prompt": "Hello."}, {SESSION: "no good"}),
    post({"prompt": "Hello."}, {**BOB, ACTOR: "no good"}),
    post({"prompt": "Hello."}, {**BOB, KEY: "no good"}),
    post({"prompt": "Hello."}, {KEY: "key-1"}),
    post({"prompt": "Hello."}, {**BOB, "Origin": "https://attacker.example"}),
    post({"prompt": "Hello."}, {**BOB, "Host": "attacker.example"}),
    ("GET", "/invocations", {}, None),
    ("POST", "/ping", {}, {}),
    ("POST", "/invocations/x", BOB, {"prompt": "Hello."}),
    ("GET", "/", {}, None),
]
# Of the agent of this suite, whose turns can wait; CALL is the id of the call that waits.
CALL = "<call>"
DELETE = {"prompt": "use delete_order: 7"}
APPROVALS: list[Asked] = [
    post(DELETE, {**ADA, **JSON}),
    post({"approve": [CALL]}, {SESSION: "ada-1", ACTOR: "bob"}),
    post({"approve": ["other"]}, {**ADA, **JSON}),
    post({"approve": [CALL], "deny": [{"id": CALL}]}, {**ADA, **JSON}),
    post({"approve": []}, {**ADA, **EVENTS}),
    post({"approve": [CALL], "prompt": "Go on."}, {**ADA, **JSON}),
    post({"approve": [CALL]}, {**ADA, **JSON, KEY: "key-1"}),
    post({"approve": [CALL]}, {**ADA, **EVENTS, KEY: "key-1"}),
    post({"approve": [CALL]}, {**ADA, **JSON}),
    post(DELETE, {**ADA, **EVENTS, KEY: "key-2"}),
    post(DELETE, {**ADA, **EVENTS, KEY: "key-2"}),
    post(DELETE, {**ADA, **JSON, KEY: "key-2"}),
    post({"deny": [{"id": CALL, "reason": 1}]}, ADA),
    post({"prompt": "Rather not."}, {**ADA, **EVENTS}),
    post({"replace_turn": 1}, {**ADA, **JSON}),
    post({"replace_turn": 1, "prompt": "Hello."}, {**ADA, **JSON}),
    post({"deny": [{"id": CALL}]}, ADA),
    post({"approve": [CALL]}, {**BOB, **JSON}),
]


def transcript(server: Server, requests: list[Asked] = REQUESTS) -> list[dict[str, Any]]:
    """Ask everything, and return what came back."""
    entries, call = [], b""
    for request in requests:
        method, path, headers, body = request
        if CALL in json.dumps(body if isinstance(body, dict) else None):
            body = json.dumps(body).encode().replace(CALL.encode(), call)
        reply = _ask(server, (method, path, headers, body))
        if waiting := re.search(rb'"waiting":\[{"id":"([^"]+)"', reply.body):
            call = waiting[1]
        seen = _seen(reply)
        if call:
            seen["body"] = seen["body"].replace(call.decode(), CALL)
        entries.append({"request": _name(request), **seen})
    return entries


def _ask(server: Server, request: Asked) -> Reply:
    method, path, headers, body = request
    return server.send(body, headers, method=method, path=path).reply()


def _name(request: Asked) -> str:
    method, path, headers, body = request
    content = body.decode() if isinstance(body, bytes) else json.dumps(body)
    return f"{method} {path} {json.dumps(dict(headers))} {content[:80]}"


def _seen(reply: Reply) -> dict[str, Any]:
    body = TIME.sub("<time>", UUID.sub("<uuid>", reply.body.decode("utf-8")))
    headers = {name: UUID.sub("<uuid>", reply.headers.get(name) or "") for name in KEPT}
    return {"status": reply.status, "headers": headers, "body": body}
