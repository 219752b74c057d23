"""Background turns of useChat, with the client of the AI SDK: resume, stop and two pages."""

import json
import threading
import time
from typing import Any
from urllib.parse import quote

import pytest

from tests.background.follower import Background, end_of_head
from tests.conformance.chat import assert_failed
from tests.conformance.client import ACTOR, KEY, SESSION, Exchange
from tests.conformance.provider import Provider
from tests.conformance.server import Fleet, Server
from tests.conformance.steps import Flood, Hold
from tests.stores.servers import wait_for
from tests.ui.chat_page import LOAD, PATH, RESUME, Page, body, send, texts, unique

LEAVE = {"do": "leave"}
ORIGIN = {"Origin": "https://page.example"}


def stream_of(page: Page) -> str:
    return f"/api/chat/{page.id}/stream"


def has_only_an_id(server: Server, path: str) -> bool:
    """Whether a turn runs whose stream can no longer start."""
    exchange = server.send(None, method="GET", path=path)
    head = exchange.head()
    exchange.leave()
    return (head.status, "X-Turn-Id" in head.headers) == (204, True)


def may_read_the_id(exchange: Exchange) -> bool:
    """Whether a page of another origin may read the id of the turn."""
    names = ", ".join(exchange.head().headers.get_all("Access-Control-Expose-Headers", []))
    return {SESSION, "Retry-After", "WWW-Authenticate", "X-Turn-Id"} == set(names.split(", "))


def another(page: Page) -> Page:
    """The same chat in another tab."""
    tab = Page(page.server)
    tab.id = page.id
    return tab


def parts_of(exchange: Exchange) -> list[Any]:
    events = [it for it in exchange.reply().body.decode().split("\n\n") if it[:5] == "data:"]
    assert events.pop() == "data: [DONE]"
    return [json.loads(event.removeprefix("data: ")) for event in events]


def test_a_page_leaves_and_another_resumes_the_turn(
    server: Server, provider: Provider, gate: threading.Event
) -> None:
    page, text = Page(server), unique("Hello")
    provider.script(text, ["Slow, ", Hold(gate), "but sure."])
    page.act({**LEAVE, "text": text})
    threading.Timer(0.5, gate.set).start()
    (resumed,) = another(page).act(RESUME)
    assert (resumed["status"], resumed["error"], resumed["isDone"]) == ("ready", None, True)
    assert [part["text"] for part in resumed["read"]["parts"]] == ["Slow, but sure."]
    assert resumed["parts"][0]["type"] == "start"
    assert resumed["read"]["metadata"]["turn"] == 1
    (loaded,) = another(page).act(LOAD)
    assert texts(loaded["messages"]) == [text, "Slow, but sure."]
    assert loaded["messages"][1]["id"] == resumed["read"]["id"]


def test_without_a_running_turn_there_is_nothing_to_resume(server: Server) -> None:
    page, text = Page(server), unique("Hello")
    reply = server.get(stream_of(page))
    assert (reply.status, reply.body) == (204, b"")
    (sent,) = page.act(send(text))
    assert sent["read"]["metadata"]["turn"] == 1
    assert server.get(stream_of(page)).status == 204
    (resumed,) = another(page).act(RESUME)
    assert (resumed["status"], resumed["messages"]) == ("ready", [])


def test_two_pages_see_the_same_parts(
    server: Server, provider: Provider, gate: threading.Event
) -> None:
    page, text = Page(server), unique("Hello")
    provider.script(text, ["Slow, ", Hold(gate), "but sure."])
    page.act({**LEAVE, "text": text})
    readers = [server.send(None, method="GET", path=stream_of(page)) for _ in range(2)]
    for reader in readers:
        assert reader.head().status == 200
        assert reader.head().headers["X-Turn-Id"]
        assert reader.head().headers["x-vercel-ai-ui-message-stream"] == "v1"
        assert reader.head().headers["Content-Type"].startswith("text/event-stream")
    gate.set()
    first, second = map(parts_of, readers)
    assert first == second
    assert [part["type"] for part in first][-1] == "finish"


def test_a_running_turn_whose_beginning_was_dropped_has_only_an_id(
    fleet: Fleet, provider: Provider, gate: threading.Event
) -> None:
    server = fleet.shared(MAX_EVENT_BYTES=1024)
    page, text = Page(server), unique("Hello")
    provider.script(text, [Flood(100, 100), Hold(gate), "The end."])
    sent = server.send(body(page.id, text), path=PATH)
    wait_for("a dropped event", lambda: has_only_an_id(server, stream_of(page)))
    assert sent.head().status == 200
    gate.set()
    wait_for("the end", lambda: not has_only_an_id(server, stream_of(page)))
    reply = server.get(stream_of(page))
    assert (reply.status, reply.headers["X-Turn-Id"]) == (204, None)
    assert texts(page.history())[1].endswith("The end.")


def test_a_page_of_another_origin_may_read_the_id_of_its_turn(
    fleet: Fleet, provider: Provider, gate: threading.Event
) -> None:
    server = fleet.shared(MAX_EVENT_BYTES=1024, ALLOWED_ORIGINS=ORIGIN["Origin"])
    page, text = Page(server), unique("Hello")
    flood = threading.Event()
    provider.script(text, ["Slow, ", Hold(flood), Flood(100, 100), Hold(gate), "The end."])
    headers = {**ORIGIN, "Content-Type": "application/json"}
    sent = server.send(body(page.id, text), headers, path=PATH)
    assert may_read_the_id(sent)
    assert sent.head().readline()

    def resume() -> int:
        exchange = server.send(None, ORIGIN, method="GET", path=stream_of(page))
        assert may_read_the_id(exchange)
        exchange.leave()
        return exchange.head().status

    assert resume() == 200
    flood.set()
    wait_for("a dropped event", lambda: resume() == 204)


def test_delete_stops_the_turn(server: Server, provider: Provider, gate: threading.Event) -> None:
    page, text = Page(server), unique("Hello")
    provider.script(text, ["Slow, ", Hold(gate), "but sure."])
    page.act({**LEAVE, "text": text})
    reader = server.send(None, method="GET", path=stream_of(page))
    assert reader.head().status == 200
    assert server.send(None, method="DELETE", path=stream_of(page)).reply().status == 204
    assert parts_of(reader)[-1] == {"type": "abort"}
    assert server.get(stream_of(page)).status == 204
    assert page.history() == []
    assert server.send(None, method="DELETE", path=stream_of(page)).reply().status == 204


SLASHES = "agents/ada/the-chat-about-the-order-of-tea"


@pytest.mark.parametrize("is_raw", [False, True], ids=["encoded", "as useChat sends it"])
def test_the_id_of_a_chat_may_contain_slashes(
    server: Server, provider: Provider, gate: threading.Event, is_raw: bool
) -> None:
    page, text = Page(server), unique("Hello")
    page.id = f"{SLASHES}/{page.id}"
    provider.script(text, ["Slow, ", Hold(gate), "but sure."])
    page.act({**LEAVE, "text": text})
    id = page.id if is_raw else quote(page.id, safe="")
    path = f"/api/chat/{id}/stream"
    reader = server.send(None, method="GET", path=path)
    assert (reader.head().status, reader.head().headers[SESSION]) == (200, page.id)
    reply = server.get(f"/invocations/{id}/events")
    assert (reply.status, reply.error) == (409, "turn_elsewhere")
    assert quote(page.id, safe="") in reply.json["error"]["message"]
    assert server.send(None, method="DELETE", path=path).reply().status == 204
    assert parts_of(reader)[-1] == {"type": "abort"}


def test_another_actor_resumes_and_stops_nothing(
    server: Server, provider: Provider, gate: threading.Event
) -> None:
    page, text = Page(server, {ACTOR: "ada"}), unique("Hello")
    provider.script(text, ["Slow, ", Hold(gate), "but sure."])
    page.act({**LEAVE, "text": text})
    for method in ("GET", "DELETE"):
        exchange = server.send(None, {ACTOR: "bob"}, method=method, path=stream_of(page))
        assert exchange.reply().error == "session_forbidden"
    gate.set()
    while server.get(stream_of(page), {ACTOR: "ada"}).status == 200:
        time.sleep(0.05)
    assert texts(page.history()) == [text, "Slow, but sure."]


def test_a_page_of_another_actor_hides_no_session(server: Server, provider: Provider) -> None:
    ada = Background(server, provider, actor="ada")
    assert ada.say("One.").turn == 1
    page = Page(server, {ACTOR: "bob"})
    page.id = ada.session
    for _ in range(2):
        (refused,) = page.act(send(unique("Hello")))
        assert "session_forbidden" in refused["error"]
        for path in (stream_of(page), f"/api/chat?id={page.id}"):
            assert server.get(path, ada.headers).status in {200, 204}
            assert server.get(path, page.headers).error == "session_forbidden"
        assert_failed(ada.post({"follow": True}), 404, "not_found", ada.session)


def test_follow_says_where_to_follow_a_turn_of_use_chat(
    server: Server, provider: Provider, gate: threading.Event
) -> None:
    page, text = Page(server), unique("Hello")
    provider.script(text, ["Slow, ", Hold(gate), "but sure."])
    page.act({**LEAVE, "text": text})
    session = {"X-Amzn-Bedrock-AgentCore-Runtime-Session-Id": page.id}
    reply = server.post({"follow": True}, session)
    assert (reply.status, reply.error) == (409, "turn_elsewhere")
    assert stream_of(page) in reply.json["error"]["message"]
    assert server.post({"stop": True}, session).json["stopped"] is True
    gate.set()


def test_follow_knows_a_turn_of_use_chat_that_ended_at_once(chat: Background) -> None:
    assert chat.say("One.", headers={KEY: "one"}).turn == 1
    parts = [{"type": "text", "text": f"One.{chat.tag}"}]
    body = {"id": chat.session, "messages": [{"id": "one", "role": "user", "parts": parts}]}
    assert parts_of(chat.server.send(body, path="/api/chat"))[-1]["type"] == "finish"
    reply = chat.post({"follow": True})
    assert (reply.status, reply.error) == (409, "turn_elsewhere")


def test_head_of_a_stream_is_answered_at_once(
    server: Server, provider: Provider, gate: threading.Event
) -> None:
    page, text = Page(server), unique("Hello")
    provider.script(text, ["Slow, ", Hold(gate), "but sure."])
    page.act({**LEAVE, "text": text})
    assert end_of_head(server, stream_of(page)) == 200
    gate.set()


def test_a_rejected_turn_of_use_chat_is_an_error(server: Server, fleet: Fleet) -> None:
    page = Page(server)
    body = {"id": page.id, "messages": []}
    reply = server.send(body, path="/api/chat").reply()
    assert (reply.status, reply.error) == (400, "invalid_request")
    private = fleet.shared(API_TOKEN="secret-of-the-api")
    assert private.send(body, path="/api/chat").reply().status == 401
    assert private.get(stream_of(page)).status == 401
