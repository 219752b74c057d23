"""The form of a response: events or JSON, byte for byte, and when its headers are sent."""

import json
import threading

import pytest

from tests.conformance.chat import Chat, assert_failed
from tests.conformance.client import JSON
from tests.conformance.steps import ERROR, Hold

pytestmark = pytest.mark.about("the server")

E = "text/event-stream"
J = "application/json"


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        (None, E),
        ("", E),
        ("*/*", E),
        ("text/html", E),
        ("application/*", E),
        ("application/json-seq", E),
        (E, E),
        (J, J),
        ("Application/JSON", J),
        ("application/json; charset=utf-8", J),
        ("text/html, application/json;q=0.5, */*;q=0.1", J),
        (f"{E}, {J}", E),
        (f"{J}, {E}", E),
        (f"{J},{E};q=0.1", E),
        (f"{J};q=0", E),
        (f"{J}; Q = 0.000, */*", E),
        (f"{J};q=0.001", J),
        (f"{J}, {E};q=0", J),
        (f"{E};q=0, */*", J),
        ("text/*;q=0, */*", J),
        (f"text/*;q=0, {E}", E),
    ],
)
def test_events_win_over_json_and_nothing_means_events(
    chat: Chat, accept: str | None, expected: str
) -> None:
    reply = chat.say("Hello.", headers={} if accept is None else {"Accept": accept})
    assert reply.content_type == expected
    assert (reply.text, reply.turn) == ("You said: Hello.", 1)


def test_accept_may_come_in_two_lines(chat: Chat) -> None:
    headers = [*chat.headers.items(), ("Accept", J), ("Accept", E)]
    assert chat.server.post({"prompt": "Hello."}, headers).content_type == E


def test_events_are_these_bytes(chat: Chat) -> None:
    reply = chat.say("Hello.", ["Gr\u00fc\u00dfe,\n", '"\U0001f40d" ', "\u2028\u6f22\\"])
    assert reply.body.decode() == (
        'data: "Gr\u00fc\u00dfe,\\n"\n\n'
        'data: "\\"\U0001f40d\\" "\n\n'
        'data: "\u2028\u6f22\\\\"\n\n'
        "event: done\n"
        f'data: {{"session_id":"{chat.session}","turn":1,"model":"test-model"}}\n\n'
    )


def test_json_is_these_bytes(chat: Chat) -> None:
    reply = chat.say("Hello.", ["Gr\u00fc\u00dfe,\n", '"\U0001f40d" \u6f22'], headers=JSON)
    text = 'Gr\u00fc\u00dfe,\\n\\"\U0001f40d\\" \u6f22'
    expected = f'{{"session_id":"{chat.session}","turn":1,"model":"test-model","reply":"{text}"}}'
    assert reply.body.decode() == expected
    assert reply.headers["X-Content-Type-Options"] == "nosniff"


def test_an_error_is_compact_json_of_two_words(chat: Chat) -> None:
    reply = chat.server.post({"prompt": ""}, chat.headers)
    compact = json.dumps(reply.json, separators=(",", ":"), ensure_ascii=False)
    assert reply.body.decode() == compact
    assert list(reply.json["error"]) == ["type", "message"]


def test_an_error_event_is_compact_json_of_two_words(chat: Chat) -> None:
    reply = chat.say("Hello.", ["Well, ", ERROR])
    ((_, _), (_, data)) = reply.events
    compact = json.dumps(data, separators=(",", ":"), ensure_ascii=False)
    assert reply.body.decode() == f'data: "Well, "\n\nevent: error\ndata: {compact}\n\n'


def test_headers_wait_for_the_first_text_that_is_not_blank(
    chat: Chat, gate: threading.Event
) -> None:
    exchange = chat.start("Hello.", [" ", "\n\ufeff", Hold(gate), "Hi."])
    chat.call("Hello.")
    assert not exchange.answered(within=0.2)
    gate.set()
    reply = exchange.reply()
    assert "".join(reply.chunks) == " \n\ufeffHi."
    assert reply.turn == 1


def test_headers_do_not_wait_any_longer(chat: Chat, gate: threading.Event) -> None:
    exchange = chat.start("Hello.", ["Hi", Hold(gate), "."])
    assert exchange.head().status == 200
    assert not gate.is_set()
    gate.set()
    assert exchange.reply().text == "Hi."


def test_blank_chunks_after_the_first_text_are_sent(chat: Chat) -> None:
    reply = chat.say("Hello.", ["Hi", "\n", " ", "there", "\n"])
    assert reply.chunks == ["Hi", "\n", " ", "there", "\n"]


def test_an_error_is_json_for_every_accept_header(chat: Chat) -> None:
    reply = chat.say("Hello.", [], headers={"Accept": E})
    assert_failed(reply, 502, "empty_reply", chat.session)
