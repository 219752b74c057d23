"""Files of a prompt: the model receives their bytes, and the session contains them."""

import json
from base64 import b64encode
from typing import Any

import pytest

from tests.conformance import targets
from tests.conformance.chat import Chat, assert_done
from tests.conformance.client import JSON, Reply
from tests.conformance.provider import Provider
from tests.conformance.server import Fleet
from tests.conformance.steps import Call
from tests.support.files import ACCEPTED, DOCX_TYPE, PDF, REFUSED, Sample, png, sent

pytestmark = pytest.mark.about("turns")
VENDOR_TARGETS = [*targets.TARGETS, *targets.VENDOR_TARGETS]
PHOTO = ("photo.png", "image/png", png())
REPORT = ("Annual report (1).pdf", "application/pdf", PDF)
NOTES = ("notes.md", "text/markdown", b"# Fact-42\n")


def is_sample(test: str, parameters: dict[str, Any]) -> bool:
    """Whether a usual run has this: only the files of a request depend on the vendor's client."""
    is_of_vendor = "receives" in test or "of_one_name" in test
    return is_of_vendor or parameters["target"] in targets.TARGETS


def say(chat: Chat, text: str, *files: Sample, **fields: Any) -> Reply:
    body = {"prompt": text + chat.tag, "files": [sent(*file) for file in files], **fields}
    return chat.post(body)


def files_in(chat: Chat, text: str) -> list[tuple[str, bytes]]:
    """The files of the last request for a prompt."""
    return [(entry[1], entry[2]) for entry in chat.calls(text)[-1].history if entry[0] == "file"]


def test_the_model_receives_the_bytes_of_images_and_documents(chat: Chat) -> None:
    reply = say(chat, "Look.", PHOTO, REPORT)
    assert_done(reply, ["You said: ", "Look."], 1, chat.session)
    expected = [("image/png", PHOTO[2]), ("application/pdf", PDF)]
    assert files_in(chat, "Look.") == expected
    # The next turns send them again; two documents have different names.
    assert say(chat, "Again.", REPORT).turn == 2
    assert files_in(chat, "Again.") == [*expected, expected[1]]


def test_the_model_receives_the_text_of_a_text_file(chat: Chat) -> None:
    assert say(chat, "Read.", NOTES).turn == 1
    request = repr(chat.provider.calls[-1].request)
    assert "Fact-42" in request or b64encode(NOTES[2]).decode() in request


def test_the_reply_of_a_turn_with_files_can_be_replaced(chat: Chat) -> None:
    assert say(chat, "Look.", PHOTO).turn == 1
    assert chat.post({"replace_turn": 1}).turn == 1
    assert files_in(chat, "Look.") == [("image/png", PHOTO[2])]
    assert say(chat, "Other.", replace_turn=1).turn == 1
    assert files_in(chat, "Other.") == []


def test_a_fork_contains_the_files(chat: Chat) -> None:
    assert say(chat, "Look.", PHOTO).turn == 1
    copy = chat.elsewhere(session=f"{chat.session}-copy")
    assert chat.post({"fork": copy.session, "at_turn": 1}).status == 200
    assert copy.say("What was it?").turn == 2
    assert files_in(copy, "What was it?") == [("image/png", PHOTO[2])]


def test_a_turn_that_fails_leaves_no_file(chat: Chat) -> None:
    chat.script("Look.", [])
    assert say(chat, "Look.", PHOTO).status == 502
    assert chat.recalled() == []


def test_files_of_other_types_are_refused(chat: Chat) -> None:
    for name, media_type, content in REFUSED:
        reply = say(chat, "Look.", (name, media_type, content))
        assert (reply.status, reply.error) == (415, "unsupported_file"), name
        message = reply.json["error"]["message"]
        assert message.startswith((name, "The model does not accept")), message
    assert chat.provider.calls_for("Look." + chat.tag) == []
    assert chat.recalled() == []


def test_files_of_all_types_are_accepted(chat: Chat, target: targets.Target) -> None:
    accepted = [sample for sample in ACCEPTED if sample[1] != DOCX_TYPE]
    for number, sample in enumerate(accepted, 1):
        assert say(chat, "Look.", sample).turn == number, sample[0]
    (docx,) = [sample for sample in ACCEPTED if sample[1] == DOCX_TYPE]
    reply = say(chat, "Look.", docx)
    if "bedrock" in target.name:
        assert reply.turn == len(accepted) + 1
    else:
        assert (reply.status, reply.error) == (415, "unsupported_file")
        message = reply.json["error"]["message"]
        assert message.startswith(f"The model does not accept {DOCX_TYPE}. Send one of: image/png,")


def test_wrong_fields_are_refused(chat: Chat) -> None:
    whole = sent(*PHOTO)
    wrong: list[Any] = [
        "photo.png",
        {},
        [[]],
        ["photo.png"],
        [{}],
        [{**whole, "data": 1}],
        [{**whole, "data": "a b"}],
        [{**whole, "data": whole["data"][:-1]}],
        [{**whole, "data": whole["data"].replace("=", "") + "-_"}],
        [{**whole, "name": 1}],
        [{**whole, "media_type": None}],
        [{"media_type": "image/png", "url": "http://169.254.169.254/latest/meta-data"}],
        [{**whole, "url": "https://example.com/photo.png"}],
    ]
    for files in wrong:
        reply = chat.post({"prompt": "Look.", "files": files})
        assert (reply.status, reply.error) == (400, "invalid_request"), files
    assert chat.recalled() == []


def test_files_are_limited_in_number_and_size(fleet: Fleet, chat: Chat) -> None:
    limited = chat.elsewhere(fleet.shared(MAX_FILES=2, MAX_FILE_BYTES=1000))
    reply = say(limited, "Look.", PHOTO, PHOTO, PHOTO)
    assert (reply.status, reply.error) == (413, "payload_too_large")
    assert "at most 2 files" in reply.json["error"]["message"]
    reply = say(limited, "Look.", ("big.txt", "text/plain", b"a" * 1001))
    assert (reply.status, reply.error) == (413, "payload_too_large")
    assert "big.txt is larger than 1000 bytes" in reply.json["error"]["message"]
    assert say(limited, "Look.", ("fits.txt", "text/plain", b"a" * 1000), PHOTO).turn == 1


def test_a_session_that_is_full_drops_the_oldest_files(fleet: Fleet, chat: Chat) -> None:
    small = chat.elsewhere(fleet.shared(MAX_SNAPSHOT_BYTES=5000))
    second = PDF + b"b" * 2500
    assert say(small, "One.", ("1.pdf", "application/pdf", PDF + b"a" * 2500)).turn == 1
    assert say(small, "Two.", ("2.pdf", "application/pdf", second)).turn == 2
    assert small.say("Which?").turn == 3
    assert files_in(small, "Which?") == [("application/pdf", second)]
    reply = say(small, "Three.", ("3.pdf", "application/pdf", PDF + b"c" * 6000))
    assert (reply.status, reply.error) == (413, "session_too_large")


def test_files_leave_the_history_with_their_turn(fleet: Fleet, chat: Chat) -> None:
    small = chat.elsewhere(fleet.shared(HISTORY_MESSAGES=4))
    assert say(small, "One.", PHOTO).turn == 1
    assert small.say("Two.").turn == 2
    assert files_in(small, "Two.") == [("image/png", PHOTO[2])]
    for number, text in enumerate(("Three.", "Four."), 3):
        assert small.say(text).turn == number
    assert files_in(small, "Four.") == []


def test_the_characters_of_a_history_do_not_include_files(fleet: Fleet, chat: Chat) -> None:
    small = chat.elsewhere(fleet.shared(HISTORY_CHARS=10_000))
    large = ("large.pdf", "application/pdf", PDF + b"a" * 50_000)
    assert say(small, "One.", large).turn == 1
    assert small.say("Two.").turn == 2
    assert small.say("Three.").turn == 3
    assert files_in(small, "Three.") == [large[1:]]


def test_a_name_is_only_a_name(chat: Chat) -> None:
    name = "../../etc/a\x1b[31m\n\ud800/photo\x00.png"
    body = {"prompt": "Look.", "files": [{**sent(*PHOTO), "media_type": "image/gif", "name": name}]}
    encoded = json.dumps(body).encode()  # as escapes
    message = chat.post(encoded, JSON).json["error"]["message"]
    assert message.startswith("photo.png contains image/png, not image/gif.")


def test_names_and_types_that_are_not_unicode_are_refused_in_a_sentence(chat: Chat) -> None:
    for fields in (
        {"media_type": "a\ud800"},
        {"name": "a\ud800" * 100_000, "data": "!"},
        {"name": "a\r\nb: c\ud800", "media_type": "image/gif"},
    ):
        body = {"prompt": "Look.", "files": [{**sent(*PHOTO), **fields}]}
        reply = chat.post(json.dumps(body).encode(), JSON)
        assert reply.status in {400, 415}, reply
        message = reply.json["error"]["message"]
        assert len(message) < 1000
        assert "\n" not in message


def test_documents_of_one_name_have_different_names(chat: Chat, target: targets.Target) -> None:
    names = ["invoice.2024-01.pdf", "invoice.2024-02.pdf", "x" * 250 + ".pdf", "é.pdf"]
    for number, name in enumerate([*names, names[0]], 1):
        assert say(chat, f"Number {number}.", (name, "application/pdf", PDF)).turn == number
    assert len(files_in(chat, "Number 5.")) == 5
    # Bedrock accepts five documents.
    assert say(chat, "Number 6.", REPORT).turn == 6
    kept = [content for _, content in files_in(chat, "Number 6.")]
    assert len(kept) == (5 if "bedrock" in target.name else 6)


def test_a_repeated_key_returns_the_reply(chat: Chat) -> None:
    body = {"prompt": "Look." + chat.tag, "files": [sent(*PHOTO)]}
    key = {"Idempotency-Key": "one"}
    assert chat.post(body, key).turn == 1
    assert chat.post(body, key).turn == 1
    assert len(chat.calls("Look.")) == 1


def test_the_model_receives_the_image_of_a_tool(own_agents: Fleet, provider: Provider) -> None:
    chat = Chat(own_agents.shared(), provider)
    assert chat.say("Look.", [Call("photo", {})], ["A gif."]).turn == 1
    assert chat.say("What was it?").turn == 2
    requests = [call.request for call in provider.calls if chat.tag in repr(call.request)]
    assert ["R0lGODlh/wA=" in repr(request) for request in requests] == [False, True, True]
