"""Text at its edges: what is JSON, what is blank, what is long, and what arrives as it is."""

import json

import pytest

from tests.conformance.chat import Chat, assert_done, assert_failed, echoed
from tests.conformance.client import JSON, Reply
from tests.conformance.conftest import NewChat
from tests.conformance.provider import Provider
from tests.conformance.server import Server
from tests.conformance.steps import JUNK, Call
from tests.conformance.wires import BLANKS


def nested(levels: int) -> bytes:
    """A body whose deepest value is that many levels down; the object itself is the first."""
    inside = levels - 1
    return b'{"prompt": "Hello.", "x": ' + b"[" * inside + b"]" * inside + b"}"


@pytest.mark.parametrize(
    "text",
    [
        "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea",
        "\ufeffHello.",
        "  Hello.\n\n",
        "a\u0000b\u0001\u007f\u0085\u2028",
        "e\u0301 and \u00e9",
        "\U0010ffff\uffff",
        "\u200b",
        "\u180e",
        "\u001c\u001d\u001e\u001f",
        "null",
        "[[[[" * 40,
    ],
    ids=ascii,
)
def test_a_prompt_arrives_as_it_was_sent(server: Server, provider: Provider, text: str) -> None:
    provider.script(text, [text, "."])
    reply = server.post({"prompt": text}, JSON)
    assert (reply.status, reply.json["reply"]) == (200, text + ".")
    assert provider.calls_for(text)[-1].history == [("user", text)]
    escaped = json.dumps({"prompt": text}).encode("ascii")
    assert server.post(escaped).text.startswith("You said: ")


@pytest.mark.about("the server")
@pytest.mark.parametrize("blank", BLANKS, ids=ascii)
def test_white_space_is_blank(server: Server, blank: str) -> None:
    reply = server.post({"prompt": blank * 2})
    assert_failed(reply, 400, "invalid_request", reply.session)


@pytest.mark.about("the server")
def test_all_white_space_together_is_blank(server: Server) -> None:
    assert server.post({"prompt": ""}).error == "invalid_request"
    assert server.post({"prompt": BLANKS}).error == "invalid_request"


@pytest.mark.about("the server")
@pytest.mark.parametrize(
    "body",
    [
        *(b"[]", b'"text"', b"1", b"null", b"true", b"[{}]"),
        *(b"{}", b'{"Prompt": "Hello."}', b'{"prompt": null}', b'{"prompt": 1}'),
        *(b'{"prompt": ["Hello."]}', b'{"prompt": {"text": "Hello."}}', b'{"prompt": true}'),
        *(rb'{"prompt": "\ud800"}', rb'{"prompt": "a\udfff"}', rb'{"prompt": "\ude00\ud83d"}'),
    ],
)
def test_a_body_that_asks_nothing(server: Server, body: bytes) -> None:
    reply = server.post(body)
    assert_failed(reply, 400, "invalid_request", reply.session)


@pytest.mark.about("the server")
@pytest.mark.parametrize(
    "body",
    [
        *(b"", b" ", b"{", b'{"prompt": "Hello."', b'{"prompt": "Hello."} x', b"Hello."),
        *(b"{'prompt': 'Hello.'}", b'{"prompt": "Hello.",}', b'{"prompt": "Hello."} // no'),
        *(b'{"prompt": "Hello.", "x": NaN}', b'{"prompt": "Hello.", "x": -Infinity}', b"Infinity"),
        *(b'{"prompt": "Hello.", "x": 01}', b'{"prompt": "Hello.", "x": +1}', b'{"x": 0x1}'),
        *(b'{"prompt": "a\nb"}', b'{"prompt": "a\x00b"}', rb'{"prompt": "\x41"}', b'{"a": .5}'),
        *(b'\xc2\xa0{"prompt": "Hello."}', b'\x0c{"prompt": "Hello."}', b'{"prompt": "a"}\x00'),
    ],
)
def test_a_body_that_is_not_json(server: Server, body: bytes) -> None:
    reply = server.post(body)
    assert_failed(reply, 400, "invalid_json", reply.session)


@pytest.mark.about("the server")
@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-32", "latin-1"])
def test_a_body_that_is_not_utf_8(server: Server, encoding: str) -> None:
    reply = server.post('{"prompt": "Gr\u00fc\u00dfe"}'.encode(encoding))
    assert_failed(reply, 400, "invalid_json", reply.session)


@pytest.mark.about("the server")
@pytest.mark.parametrize("content", [b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80"])
def test_a_prompt_that_is_not_utf_8(server: Server, content: bytes) -> None:
    reply = server.post(b'{"prompt": "a' + content + b'"}')
    assert_failed(reply, 400, "invalid_json", reply.session)


@pytest.mark.about("the server")
@pytest.mark.parametrize("levels", [65, 66, 1000, 100_000])
def test_json_nested_too_deep(server: Server, levels: int) -> None:
    reply = server.post(nested(levels))
    assert_failed(reply, 400, "invalid_json", reply.session)


@pytest.mark.about("the server")
@pytest.mark.parametrize(
    "body",
    [
        nested(64),
        b'{"prompt": "Hello.", "x": ' + b"9" * 5000 + b"}",
        b'{"prompt": "Hello.", "x": 1e999, "y": -0.0, "z": 1E+2}',
        b'{"prompt": "No.", "prompt": "Hello."}',
        b'{"prompt": "Hello.", "\\ud800": "\\udfff"}',
        b'{"prompt": "Hello.", "x": "[[[[' + b"{" * 100 + b'"}',
        b'\r\n\t {"pr\\u006fmpt" : "H\\u0065llo."}\n',
        b'{"prompt": "Hello.", "end_session": false}',
        b'{"prompt": "Hello.", "__proto__": {"end_session": true}}',
    ],
    ids=lambda body: ascii(body[:40]),
)
def test_odd_json_that_is_fine(server: Server, body: bytes) -> None:
    assert server.post(body).text == "You said: Hello."


@pytest.mark.about("the server")
def test_the_content_type_is_not_asked_for(server: Server) -> None:
    for value in ("text/plain", "application/json; charset=latin-1", "nonsense"):
        reply = server.post('{"prompt": "Gr\u00fc\u00dfe"}'.encode(), {"Content-Type": value})
        assert reply.text == "You said: Gr\u00fc\u00dfe"


@pytest.mark.about("the server")
@pytest.mark.parametrize("letter", ["x", "\u00fc", "\U0001f40d"], ids=ascii)
def test_the_length_of_a_prompt_is_counted_in_code_points(small: Server, letter: str) -> None:
    assert small.post({"prompt": letter * 100}).status == 200
    reply = small.post({"prompt": letter * 101})
    assert_failed(reply, 400, "invalid_request", reply.session)


@pytest.mark.about("the server")
def test_a_prompt_may_be_this_long_when_nothing_is_set(server: Server) -> None:
    assert server.post({"prompt": "x" * 100_000}).status == 200
    assert server.post({"prompt": "x" * 100_001}).error == "invalid_request"


@pytest.mark.about("the server")
def test_a_body_may_be_this_large_when_nothing_is_set(server: Server) -> None:
    full = b'{"prompt": "Hello."}'.ljust(6_291_456)
    assert server.post(full).status == 200
    assert server.post(full + b" ").error == "payload_too_large"


@pytest.mark.about("the server")
@pytest.mark.parametrize("chunked", [False, True], ids=["with its length", "in chunks"])
def test_the_length_of_a_body_is_counted_in_bytes(small: Server, chunked: bool) -> None:
    full = b'{"prompt": "\xc3\xbc"}'.ljust(1000)

    def post(body: bytes) -> Reply:
        return small.post(iter([body[:500], body[500:]]) if chunked else body)

    assert post(full).text == "You said: \u00fc"
    reply = post(full + b" ")
    assert_failed(reply, 413, "payload_too_large", reply.session)


@pytest.mark.parametrize("half", [chr(0xD83D), chr(0xDFFF), f"a{chr(0xD800)}z"], ids=ascii)
def test_half_a_character_in_a_reply_does_not_poison_the_session(chat: Chat, half: str) -> None:
    chat.say("One.")
    reply = chat.say("Two.", ["Well, ", half, "."])
    assert reply.events, "UTF-8 cannot carry it, so reading the events is a test"
    history = chat.recalled("Three.")
    if reply.events[-1][0] == "done":
        assert history == [*echoed("One."), ("user", "Two."), ("assistant", reply.text)]
    else:
        assert history == echoed("One.")


def test_half_a_character_in_a_tool_call_does_not_poison_the_session(chat: Chat) -> None:
    chat.say("One.")
    chat.say("Two.", [Call("word_count", raw=r'{"text": "a \ud83d b"}')], ["Done."])
    assert chat.recalled("Three.")[:2] == echoed("One.")


def test_a_long_reply_of_many_chunks_is_whole(new_chat: NewChat) -> None:
    chat = new_chat()
    chunks = [f"{number} \U0001f40d" for number in range(2000)]
    assert_done(chat.say("Count.", chunks), chunks, turn=1, session=chat.session)
    assert chat.recalled() == [("user", "Count."), ("assistant", "".join(chunks))]


@pytest.mark.about("turns")
def test_bytes_of_a_provider_that_are_not_utf8_are_shown_as_such(chat: Chat) -> None:
    reply = chat.say("Junk.", ["Well, ", JUNK, " é€."])
    assert_done(reply, ["Well, ", "a\ufffd\ufffd", " é€."], turn=1, session=chat.session)
    assert chat.recalled() == [("user", "Junk."), ("assistant", "Well, a\ufffd\ufffd é€.")]
