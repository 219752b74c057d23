"""Turns that are silent for long, behind proxies that end a silent request."""

import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from tests.conformance.chat import Chat, assert_done, assert_failed, echoed
from tests.conformance.client import KEEP_ALIVE, KEY, Exchange
from tests.conformance.conftest import NewChat, OpenFleet
from tests.conformance.idle_proxy import idle_proxy
from tests.conformance.provider import Provider
from tests.conformance.server import Fleet, Front, Server
from tests.conformance.steps import HANG, Call, Hold, Refuse, Step
from tests.conformance.targets import SHARED, Target, with_own_agent
from tests.conformance.waiting import ASKED, delete, runs
from tests.stores.servers import find_program, free_port, process, wait_for
from tests.ui.chat_page import PATH, Page, body, send, texts, unique

pytestmark = pytest.mark.about("turns")

IDLE = 2.5  # seconds after which a proxy ends a silent request
COMMENT = f"{KEEP_ALIVE}\n\n".encode()


def is_sample(test: str, parameters: dict[str, Any]) -> bool:
    """Whether a usual run has this: approvals are code that the targets of a language share."""
    target = parameters["target"]
    return "approval" not in test or target.name in SHARED


@pytest.fixture(scope="module")
def routed(target: Target, open_fleet: OpenFleet) -> Iterator[Fleet]:
    """Servers with the route for useChat, whose agent has a tool that takes its time."""
    base = target.variant.partition("+")[0]
    answers = (("model", "openai-compatible"),)
    variant = replace(with_own_agent(target), variant=f"{base}+ai-sdk-ui", answers=answers)
    with open_fleet(variant) as fleet:
        yield fleet


@pytest.fixture
def server(routed: Fleet) -> Server:
    return routed.shared(KEEP_ALIVE_SECONDS=1, SESSION_QUEUE=1)


def check_silent_turns(front: Server, provider: Provider, seconds: float) -> None:
    """Run turns that are silent for so long behind a proxy: each client gets its whole reply."""
    gate = Event()
    places = [f"place-{uuid.uuid4()}" for _ in range(2)]
    slow_tools = [Call("my_orders", {"place": place}) for place in places]
    model, failure, tool = (Chat(front, provider) for _ in range(3))
    replies = [
        model.start("Model.", [Hold(gate), "Done."], headers={KEY: "one"}),
        failure.start("Failure.", [Hold(gate), Refuse(400)]),
        tool.start("Tool.", ["First. ", slow_tools[0]], ["Second."]),
    ]
    in_page, failing, with_tool = (unique(name) for name in ("page", "failure", "tool"))
    provider.script(in_page, [Hold(gate), "Done."])
    provider.script(failing, [Hold(gate), Refuse(400)])
    provider.script(with_tool, ["First. ", slow_tools[1]], ["Second."])
    streams = [
        front.send(body(f"chat-{uuid.uuid4()}", prompt), path=PATH)
        for prompt in (failing, with_tool)
    ]
    page = Page(front)
    with ThreadPoolExecutor() as pool:
        shown = pool.submit(page.act, send(in_page))
        time.sleep(seconds)
        gate.set()
        with (front.folder / "runs").open("a") as runs:  # for this the tool waits
            runs.writelines(f"meet {place}\n" for place in places)
        (outcome,) = shown.result()
    assert (outcome["status"], outcome["error"], outcome["isDone"]) == ("ready", None, True)
    assert texts(page.history()) == [in_page, "Done."]
    silent, failed, paused = (exchange.reply() for exchange in replies)
    assert_done(silent, ["Done."], 1, model.session)
    assert silent.body.startswith(COMMENT)
    (name, data), *more = failed.events
    assert (failed.status, name, data["error"]["type"], more) == (200, "error", "model_failed", [])
    assert_done(paused, ["First. ", "Second."], 1, tool.session)
    assert COMMENT in paused.body.partition(b"First")[2].partition(b"Second")[0]
    page_failed, page_paused = (exchange.reply().body for exchange in streams)
    assert b'"errorText":"model_failed: ' in page_failed
    assert COMMENT in page_paused.partition(b"First")[2].partition(b"Second")[0]
    for stream in (page_failed, page_paused):
        assert stream.endswith(b"data: [DONE]\n\n")
    assert_done(model.say("Model.", headers={KEY: "one"}), ["Done."], 1, model.session, "")
    assert len(model.calls("Model.")) == 1
    assert failure.recalled() == []


def test_a_silent_turn_outlives_the_idle_limit_of_a_proxy(
    server: Server, provider: Provider
) -> None:
    with idle_proxy(server, IDLE) as front:
        check_silent_turns(front, provider, 1.5 * IDLE)


def test_a_turn_that_waits_for_its_session_still_gets_a_status(
    new_chat: NewChat, gate: Event
) -> None:
    chat = new_chat(actor="ada")
    other = new_chat(session=chat.session, actor="bob")
    chat.say("One.")
    running = chat.start("Two.", [Hold(gate), "Done."])
    chat.call("Two.")
    waiting = chat.send({"replace_turn": 9, "prompt": "Nine."})
    chat.server.settle()
    assert_failed(other.say("Mine?"), 403, "session_forbidden", chat.session)
    assert_failed(chat.say("Three."), 429, "session_busy", chat.session)
    assert not waiting.answered(within=2.5)
    gate.set()
    assert_failed(waiting.reply(), 400, "invalid_request", chat.session)
    assert_done(running.reply(), ["Done."], 2, chat.session)


def test_a_client_that_leaves_a_silent_stream_ends_the_turn(
    server: Server, provider: Provider
) -> None:
    with idle_proxy(server, IDLE) as front:
        chat, page, prompt = Chat(front, provider), Page(front), unique("leave")
        chat.say("One.")
        provider.script(prompt, [HANG])
        streams = [chat.start("Two.", [HANG]), front.send(body(page.id, prompt), path=PATH)]
        for stream in streams:
            await_comment(stream)
            stream.leave()
        chat.gone("Two.")
        (call,) = provider.calls_for(prompt)
        provider.wait("an end of the call", lambda: call.outcome != "running")
        assert page.history() == []
        assert chat.recalled("Three.") == echoed("One.")


def await_comment(stream: Exchange) -> None:
    """Wait until a stream that says nothing has its first comment."""
    block = b""
    while not block.endswith(COMMENT):
        line = stream.head().readline()
        assert line, f"the stream ended: {block!r}"
        block += line


def test_a_silent_turn_waits_for_an_approval_and_goes_on(
    approvals: Fleet, provider: Provider
) -> None:
    chat = Chat(approvals.shared(KEEP_ALIVE_SECONDS=1), provider)
    ends = [Event(), Event()]
    steps: list[Step] = [[Hold(ends[0]), delete(chat)], [Hold(ends[1]), "Deleted."]]
    asked = chat.start(ASKED, *steps)
    await_comment(asked)
    ends[0].set()
    name, data = asked.event()
    assert name == "waiting"
    going_on = chat.send({"approve": [call["id"] for call in data["waiting"]]})
    await_comment(going_on)
    ends[1].set()
    assert going_on.event() == ("message", "Deleted.")
    done = {"session_id": chat.session, "turn": 1, "model": "test-model"}
    assert going_on.event() == ("done", done)
    assert runs(chat) == 1


def test_a_stream_asks_proxies_not_to_buffer(server: Server) -> None:
    streams = [
        server.send({"prompt": "Hello."}),
        server.send(body(f"chat-{uuid.uuid4()}", unique("hello")), path=PATH),
    ]
    for stream in streams:
        reply = stream.reply()
        assert (reply.status, reply.content_type) == (200, "text/event-stream")
        assert reply.headers["X-Accel-Buffering"] == "no"
        assert "no-cache" in reply.headers["Cache-Control"].split(", ")
    assert "no-store" in reply.headers["Cache-Control"].split(", ")


NGINX = """
daemon off;
master_process off;
pid nginx.pid;
error_log stderr;
events {{}}
http {{
  access_log off;
  client_body_temp_path body;
  proxy_temp_path proxy;
  fastcgi_temp_path fastcgi;
  uwsgi_temp_path uwsgi;
  scgi_temp_path scgi;
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://127.0.0.1:{behind};
      proxy_http_version {version};
      proxy_read_timeout 3s;
    }}
  }}
}}
"""
HAPROXY = """
defaults
  mode http
  timeout connect 1s
  timeout client 60s
  timeout server 3s
frontend port
  bind 127.0.0.1:{port}
  default_backend agent
backend agent
  option httpchk GET /ping
  server agent 127.0.0.1:{behind} check inter 200 fall 1 rise 1
"""
REAL = {
    "nginx 1.0": ("nginx", NGINX, ["-p", ".", "-e", "stderr", "-c", "proxy.conf"]),
    "nginx 1.1": ("nginx", NGINX, ["-p", ".", "-e", "stderr", "-c", "proxy.conf"]),
    "haproxy": ("haproxy", HAPROXY, ["-db", "-f", "proxy.conf"]),
}


@pytest.mark.full
@pytest.mark.parametrize("name", REAL)
def test_a_real_proxy_passes_on_each_event_and_survives_silence(
    server: Server, provider: Provider, gate: Event, tmp_path: Path, name: str
) -> None:
    program, text, options = REAL[name]
    path = find_program(program)
    if path is None:
        pytest.skip(f"there is no {program}: apt-get install {program}")
    front, version = Front(server.folder, free_port()), name.partition(" ")[2]
    behind = server.address[1]
    text = text.format(port=front.address[1], behind=behind, version=version)
    (tmp_path / "proxy.conf").write_text(text)
    with process([path, *options], tmp_path):
        wait_for("the proxy", lambda: answers(front))
        chat = Chat(front, provider)
        stream = chat.start("Two parts.", ["First. ", Hold(gate), "Second."])
        assert stream.event() == ("message", "First. ")
        gate.set()
        assert stream.event() == ("message", "Second.")
        check_silent_turns(front, provider, 3 * 3)


def answers(front: Server) -> bool:
    """Whether a proxy is there and knows that its server is."""
    with suppress(OSError):
        return front.get("/ping").status == 200
    return False
