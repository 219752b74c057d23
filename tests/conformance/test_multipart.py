"""POST /invocations accepts a form: the same request as JSON, with the bytes of its files."""

from base64 import b64encode
from typing import Any

import httpx
import pytest

from tests.conformance.chat import Chat, assert_done, assert_failed
from tests.conformance.client import JSON, Reply
from tests.conformance.server import Fleet, Server
from tests.support.files import ACCEPTED, DOCX_TYPE, PDF, REFUSED, Sample, png, sent

pytestmark = pytest.mark.about("the server")

PHOTO = ("photo.png", "image/png", png())
REPORT = ("Bericht März; 1.pdf", "application/pdf", PDF + b"\r\n--edge\r\n\xff\x00--edge--\r\n")
FORM = {"Content-Type": "multipart/form-data; boundary=edge"}
LOCAL_PAGE = "http://localhost:3000"  # another server of this machine
OPEN = "2130706433"  # 127.0.0.1, but by this name it is not known to be loopback
PAGE = "https://www.example.com"
INVALID = "The form is invalid or incomplete"


def post(
    chat: Chat, fields: dict[str, str], *files: Sample, headers: dict[str, str] | None = None
) -> httpx.Response:
    """Send a form, as a client of HTTP writes it."""
    host, port = chat.server.address
    parts = [("files", (name, content, kind)) for name, kind, content in files]
    return httpx.post(
        f"http://{host}:{port}/invocations",
        data=fields,
        files=parts or {"none": (None, "null")},
        headers={**JSON, **chat.headers, **(headers or {})},
        timeout=60,
    )


def say(chat: Chat, text: str, *files: Sample, **fields: str) -> httpx.Response:
    return post(chat, {"prompt": text + chat.tag, **fields}, *files)


def part(name: str, content: bytes, more: bytes = b"", head: bytes = b"") -> bytes:
    """A part of a form, with more parameters and more headers."""
    disposition = b'Content-Disposition: form-data; name="%s"%s\r\n' % (name.encode(), more)
    return b"--edge\r\n" + disposition + head + b"\r\n" + content + b"\r\n"


def form(*parts: bytes) -> bytes:
    return b"".join(parts) + b"--edge--\r\n"


def refused(chat: Chat, body: bytes, message: str, kind: str = FORM["Content-Type"]) -> Reply:
    reply = chat.post(body, {**JSON, "Content-Type": kind})
    assert_failed(reply, 400, "invalid_request", chat.session)
    assert message in reply.json["error"]["message"], reply
    return reply


def files_in(chat: Chat, text: str) -> list[tuple[str, bytes]]:
    """The files of the last request for a prompt."""
    return [(entry[1], entry[2]) for entry in chat.calls(text)[-1].history if entry[0] == "file"]


def test_the_model_receives_the_prompt_and_the_bytes_of_files(chat: Chat) -> None:
    text = 'Was ist "das"?\r\n{'
    answer = say(chat, text, PHOTO, REPORT)
    assert (answer.status_code, answer.json()["turn"]) == (200, 1), answer.text
    assert files_in(chat, text) == [("image/png", PHOTO[2]), ("application/pdf", REPORT[2])]
    assert chat.calls(text)[-1].history[-1] == ("user", text + chat.tag)


def test_a_form_is_the_same_request_as_json(chat: Chat) -> None:
    files = [sent(*PHOTO), sent(*REPORT)]
    assert chat.post({"prompt": "Look." + chat.tag, "files": files}).turn == 1
    other = chat.elsewhere(session=f"{chat.session}-form")
    assert say(other, "Look.", PHOTO, REPORT).json()["turn"] == 1
    first, second = (call.request for call in chat.calls("Look."))
    assert first == second


def test_a_form_is_answered_with_events(chat: Chat) -> None:
    body = form(part("prompt", f"Hello.{chat.tag}".encode()))
    reply = chat.post(body, FORM)
    assert_done(reply, ["You said: ", "Hello."], 1, chat.session)


def test_other_fields_are_json(chat: Chat) -> None:
    assert say(chat, "One.", PHOTO).json()["turn"] == 1
    assert say(chat, "Two.", replace_turn="1", unknown='[{"a": null}]').json()["turn"] == 1
    fork = f"{chat.session}-fork"
    answer = post(chat, {"fork": f'"{fork}"', "at_turn": "1"})
    assert answer.json() == {"session_id": chat.session, "fork": fork, "turn": 1}
    assert post(chat, {"end_session": "true"}).json()["ended"] is True
    assert chat.recalled() == []
    files = '[{"media_type": "text/plain", "data": "YQ=="}]'
    assert say(chat, "Three.", files=files).json()["turn"] == 2


def test_a_repeated_key_returns_the_reply_of_json_and_of_a_form(chat: Chat) -> None:
    key = {"Idempotency-Key": "one"}
    body = {"prompt": "Look." + chat.tag, "files": [sent(*PHOTO)]}
    first = chat.post(body, {**JSON, **key}).json
    again = post(chat, {"prompt": "Look." + chat.tag}, PHOTO, headers=key)
    assert first == {**again.json(), "model": "test-model"}
    assert len(chat.calls("Look.")) == 1


def test_the_content_of_files_is_checked(chat: Chat) -> None:
    for sample in ACCEPTED:
        if sample[1] != DOCX_TYPE:
            assert say(chat, "Look.", sample).status_code == 200, sample[0]
    for sample in REFUSED:
        if not sample[1]:
            continue  # without a type, it is text
        answer = say(chat, "No.", sample)
        assert (answer.status_code, answer.json()["error"]["type"]) == (415, "unsupported_file")
    assert chat.calls("No.") == []


@pytest.mark.parametrize("head", [b"", b"Content-Type:\r\n", b"Content-Type: Text/Plain;a=b\r\n"])
def test_a_file_without_a_type_is_text(chat: Chat, head: bytes) -> None:
    prompt = part("prompt", f"Read.{chat.tag}".encode())
    file = part("files", b"Fact-42", b'; filename=""', head)
    assert chat.post(form(prompt, file), FORM).turn == 1
    request = repr(chat.provider.calls[-1].request)
    assert "Fact-42" in request or b64encode(b"Fact-42").decode() in request


def test_the_limits_of_json_apply(fleet: Fleet, chat: Chat) -> None:
    server = fleet.shared(MAX_FILES=2, MAX_FILE_BYTES=1000, MAX_BODY_BYTES=5000)
    limited = chat.elsewhere(server)
    big = ("big.txt", "text/plain", b"a" * 1001)
    for files, message in (
        ([PHOTO] * 3, "Send at most 2 files with a prompt."),
        ([big], "big.txt is larger than 1000 bytes."),
        ([("large.txt", "text/plain", b"a" * 5000)], "The body is larger than 5000 bytes."),
    ):
        answer = say(limited, "Look.", *files)
        error = {"type": "payload_too_large", "message": message}
        assert (answer.status_code, answer.json()["error"]) == (413, error)
    assert say(limited, "Look.", ("fits.txt", "text/plain", b"a" * 1000), PHOTO).json()["turn"] == 1


def test_the_names_of_files_are_only_names(chat: Chat) -> None:
    for name, shown in {
        rb"../../etc/a\"b.png": 'a"b.png',
        b"C:\\files\\c.png": "c.png",
        "a\u202e\x1bé.png".encode(): "a\u202eé.png",
        b"x" * 300 + b".png": "x" * 196 + ".png",
    }.items():
        head = b"Content-Type: image/gif\r\n"
        file = part("files", PHOTO[2], b"; filename=\"%s\"; filename*=utf-8''d.png" % name, head)
        reply = chat.post(form(part("prompt", b"Look."), file), {**JSON, **FORM})
        assert (reply.status, reply.error) == (415, "unsupported_file")
        message = reply.json["error"]["message"]
        assert message.startswith(f"{shown} contains image/png, not image/gif."), message


@pytest.mark.parametrize(
    ("body", "message"),
    [
        pytest.param(b"", INVALID, id="no body"),
        pytest.param(b'{"prompt": "Hello."}', INVALID, id="JSON"),
        pytest.param(part("prompt", b"Hello."), INVALID, id="no end"),
        pytest.param(form(part("prompt", b"Hello."))[:-6], INVALID, id="half an end"),
        pytest.param(part("prompt", b"Hello.")[:30], INVALID, id="half a header"),
        pytest.param(b"--edge\r\n" * 3, INVALID, id="only boundaries"),
        pytest.param(b"preamble\r\n" + form(part("prompt", b"a")), INVALID, id="a preamble"),
        pytest.param(form(part("prompt", b"a", head=b"A: b\r\n" * 2000)), INVALID, id="headers"),
        pytest.param(
            form(part("prompt", b"a", head=b"A: %s\r\n" % (b"b" * 9000))), INVALID, id="long"
        ),
        pytest.param(form(), "Send a prompt", id="no part"),
        pytest.param(form(part("prompt", b" ")), "Send a prompt", id="a blank prompt"),
        pytest.param(
            form(*[part("prompt", b"a")] * 2),
            'Send the field "prompt" only once.',
            id="two prompts",
        ),
        pytest.param(
            form(*[part(f"a{number}", b"1") for number in range(1000)]),
            "Send at most 40 parts in a form.",
            id="many fields",
        ),
        pytest.param(
            form(*[part("files", b"1", b'; filename="a"')] * 50_000),
            "Send at most 40 parts in a form.",
            id="many files",
        ),
        pytest.param(
            form(part("files", b"\r\n--edge-" * 500_000, b'; filename="a"')),
            "form",
            id="boundaries in a file",
        ),
        pytest.param(
            form(part("prompt", b"Hello.", b'; filename="prompt.txt"')),
            'Send a file in the field "files", not "prompt".',
            id="a prompt in a file",
        ),
        pytest.param(
            form(part("image\u202e\x1b[", b"Hello.", b'; filename="a.png"')),
            'not "image\\u202e\\u001b[".',
            id="a file in another field",
        ),
        pytest.param(
            form(part("files", b"[]"), part("files", b"a", b'; filename="a.txt"')),
            'Send the field "files" only once.',
            id="files twice",
        ),
        pytest.param(
            form(part("prompt", b"a\xff")),
            'The value of the field "prompt" is not UTF-8.',
            id="a prompt in Latin-1",
        ),
        pytest.param(
            form(part("prompt", b"a"), part("replace_turn", b"one")),
            'The value of the field "replace_turn" is not JSON.',
            id="text",
        ),
        pytest.param(form(part("prompt", b"a"), part("x" * 9000, b"")), INVALID, id="a long name"),
        pytest.param(
            form(part("prompt", b"a"), part("x" * 500, b"")),
            f'The value of the field "{"x" * 100}" is not JSON.',
            id="an empty field",
        ),
        pytest.param(
            form(part("prompt", b"a"), part("deep", b"[" * 65 + b"]" * 65)),
            'The value of the field "deep" is not JSON.',
            id="deep",
        ),
        pytest.param(
            b"--edge\r\nContent-Type: text/plain\r\n\r\na\r\n--edge--\r\n",
            "Each part of a form needs a Content-Disposition with a name in UTF-8.",
            id="no name",
        ),
        pytest.param(
            b"--edge\r\n\r\na\r\n--edge--\r\n",
            "form",
            id="no header",
        ),
        pytest.param(
            form(part("files", b"a", b'; filename="\xff"')),
            "Each part of a form needs a Content-Disposition with a name in UTF-8.",
            id="a name in Latin-1",
        ),
    ],
)
def test_an_invalid_form_is_refused_in_a_sentence(chat: Chat, body: bytes, message: str) -> None:
    refused(chat, body, message)
    assert chat.recalled() == []


@pytest.mark.parametrize(
    "parameters",
    [
        "",
        ";",
        "; boundary",
        "; boundary=",
        '; boundary=""',
        "; charset=utf-8",
        "; boundary=\xe9",
        f"; boundary={'x' * 71}",
    ],
)
def test_a_form_needs_a_boundary(chat: Chat, parameters: str) -> None:
    message = "Send the boundary of the form, 1 to 70 characters, in its Content-Type."
    refused(chat, form(part("prompt", b"a")), message, f"multipart/form-data{parameters}")


@pytest.mark.parametrize(
    "kind",
    [
        'Multipart/Form-Data;Boundary="edge"',
        "multipart/form-data; charset=utf-8; boundary=edge",
        "multipart/form-data ; boundary = edge ; a=b",
    ],
)
def test_a_content_type_can_have_other_parameters(chat: Chat, kind: str) -> None:
    body = form(part("prompt", b"Hello."))
    assert chat.post(body, {"Content-Type": kind}).turn == 1


def test_a_form_that_never_ends_runs_nothing(chat: Chat) -> None:
    body = form(part("prompt", f"Hello.{chat.tag}".encode()))
    exchange = chat.server.send(None, path="/ping", method="GET")
    exchange.reply(keep=True)
    head = f"POST /invocations HTTP/1.1\r\nHost: {exchange.host}\r\nContent-Length: {len(body)}\r\n"
    exchange.write(f"{head}Content-Type: {FORM['Content-Type']}\r\n\r\n".encode() + body[:-1])
    chat.server.settle()
    exchange.leave()
    chat.server.settle()
    assert chat.calls("Hello.") == []


@pytest.fixture(scope="module")
def listed(fleet: Fleet) -> Server:
    """A server for other machines, with a page that may call it."""
    return fleet.fresh(HOST=OPEN, ALLOWED_HOSTS="agent.example", ALLOWED_ORIGINS=PAGE)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://localhost.evil.example"}, 403),
        ({"Origin": LOCAL_PAGE}, 400),  # JSON needs a preflight, which the server refuses
        ({"Origin": LOCAL_PAGE, "Sec-Fetch-Site": "same-origin"}, 400),
        ({"Sec-Fetch-Site": "cross-site"}, 400),
        ({"Sec-Fetch-Site": "same-site"}, 400),
        ({"Sec-Fetch-Site": "none"}, 200),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
    ],
)
def test_a_page_of_another_site_cannot_send_a_form(
    chat: Chat, headers: dict[str, str], status: int
) -> None:
    body = form(part("prompt", f"Hello.{chat.tag}".encode()))
    reply = chat.post(body, {**FORM, **headers})
    assert reply.status == status, reply
    assert len(chat.calls("Hello.")) == (status == 200)


def test_a_page_of_the_agent_can_send_a_form(chat: Chat) -> None:
    host, port = chat.server.address
    headers = {"Origin": f"http://{host}:{port}", "Sec-Fetch-Site": "same-origin", **FORM}
    assert chat.post(form(part("prompt", b"Hello.")), headers).turn == 1


def test_a_listed_page_can_send_a_form(listed: Server) -> None:
    body = form(part("prompt", b"Hello."))
    host = {"Host": "agent.example", **FORM}
    for origin in (PAGE, PAGE.upper(), "https://agent.example"):
        expected = 200 if origin.lower() == PAGE else 403
        headers: dict[str, Any] = {**host, "Origin": origin, "Sec-Fetch-Site": "cross-site"}
        assert listed.post(body, headers).status == expected, origin
    both = [*host.items(), ("Origin", PAGE), ("Origin", LOCAL_PAGE)]
    assert listed.post(body, both).error == "invalid_request"
