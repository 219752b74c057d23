"""A model that does not read a file: the caller learns it, and no session sticks."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conformance import targets
from tests.conformance.chat import Chat, assert_failed, echoed
from tests.conformance.client import JSON
from tests.conformance.provider import Provider
from tests.conformance.server import Fleet
from tests.conformance.steps import Call, Refuse, Step
from tests.conformance.test_context_length import speaks_of, warnings_of
from tests.conformance.test_files import NOTES, PHOTO, REPORT, files_in, say

pytestmark = pytest.mark.about("turns")
VENDOR_TARGETS = [*targets.TARGETS, *targets.VENDOR_TARGETS]
BLIND = "This model doesn't support the image content block that you provided."

# As they stand in documents and reports of users: status, code, text.
Text = tuple[int, str | None, str]
IMAGES: dict[str, Text] = {
    "OpenAI": (400, None, "Invalid content type. image_url is only supported by certain models."),
    "Anthropic": (400, "invalid_request_error", "'claude-2.1' does not support image input."),
    "Bedrock": (400, "ValidationException", f"{BLIND} Update the content block and try again."),
    "DeepSeek": (
        400,
        "invalid_request_error",
        "Failed to deserialize the JSON body into the target type: messages[4]: unknown variant"
        " `image_url`, expected `text` at line 1 column 395009",
    ),
    "Groq": (400, None, "messages[1].content must be a string"),
    "LM Studio": (400, None, "Model does not support images. Please use a model that does."),
    "llama.cpp": (
        500,
        "server_error",
        "image input is not supported - hint: if this is unexpected, you may need to provide the"
        " mmproj",
    ),
    "mlx-lm": (404, None, "Only 'text' content type is supported."),
    "Ollama": (400, None, "this model does not support image input (ref: b8bd630e)"),
    "OpenRouter": (404, "404", "No endpoints found that support image input"),
    "vLLM": (400, "BadRequestError", "At most 0 image(s) may be provided in one prompt."),
    "vLLM, older": (400, "BadRequestError", "GLM-5.2 is not a multimodal model"),
}
DOCUMENTS: dict[str, Text] = {
    "OpenAI": (
        400,
        "invalid_value",
        "Invalid Value: 'file'. Supported values are: 'text', 'image_url', 'input_audio',"
        " 'refusal', and 'audio'.",
    ),
    "Anthropic": (400, "invalid_request_error", "'claude-3-haiku' does not support PDF input."),
    "Bedrock": (400, "ValidationException", "This model doesn't support documents."),
    "Bedrock's Claude": (
        400,
        "ValidationException",
        "The model returned the following errors: claude-3-5-haiku-20241022 does not support PDFs.",
    ),
    "Qwen": (
        400,
        None,
        "Invalid value: file. Supported values are: 'text','image_url','video_url' and 'video'.",
    ),
    "vLLM": (501, "NotImplementedError", "Unknown part type: file"),
}


def is_sample(test: str, parameters: dict[str, Any]) -> bool:
    """A usual run has the texts of vendors with their clients, and the rest with the first."""
    is_first = any(parameters["target"].name == target.name for target in targets.TARGETS)
    return is_first or "says_so" in test


@pytest.fixture(autouse=True)
def a_model_that_reads_all_files(provider: Provider) -> Iterator[None]:
    yield
    provider.unread = None


def refusing(text: Text) -> Step:
    status, code, quote = text
    return [Refuse(status, code, text=quote)]


@pytest.mark.rows(where=lambda row: speaks_of(row["target"], row["vendor"]))
@pytest.mark.parametrize("vendor", IMAGES)
def test_a_model_without_images_says_so(chat: Chat, vendor: str) -> None:
    assert chat.say("One.").turn == 1
    chat.provider.unread = refusing(IMAGES[vendor])
    reply = say(chat, "Look.", PHOTO)
    assert_failed(reply, 415, "unsupported_file", chat.session)
    message = reply.json["error"]["message"]
    assert message.startswith("The model does not read images. Send one of: application/pdf, ")
    assert "image/" not in message
    assert chat.recalled() == echoed("One.")


@pytest.mark.rows(where=lambda row: speaks_of(row["target"], row["vendor"]))
@pytest.mark.parametrize("vendor", DOCUMENTS)
def test_a_model_without_documents_says_so(chat: Chat, vendor: str) -> None:
    chat.provider.unread = refusing(DOCUMENTS[vendor])
    reply = say(chat, "Read.", REPORT)
    assert_failed(reply, 415, "unsupported_file", chat.session)
    accepted = "image/png, image/jpeg, image/gif, image/webp, text/plain, text/csv, text/markdown"
    message = f"The model does not read documents. Send one of: {accepted}."
    assert reply.json["error"]["message"] == message
    assert chat.recalled() == []


def test_a_session_with_older_files_continues_with_notes(fleet: Fleet, provider: Provider) -> None:
    chat = Chat(fleet.fresh(), provider)
    assert say(chat, "Look.", PHOTO, NOTES).turn == 1
    provider.unread = [Refuse(400, text=BLIND)]
    assert chat.say("What was it?").turn == 2
    assert files_in(chat, "What was it?") == []
    assert "A file of type image/png, which this model does not accept" in repr(
        chat.calls("What was it?")[-1].request
    )
    assert len(chat.calls("What was it?")) == 2
    warning = "model: it does not read images: set FILE_TYPES in the model module"
    assert warnings_of(chat) == [warning]
    provider.unread = None
    assert chat.say("And now?").turn == 3
    assert files_in(chat, "And now?") == [("image/png", PHOTO[2])]


def test_the_image_of_a_tool_becomes_a_note(own_agents: Fleet, provider: Provider) -> None:
    chat = Chat(own_agents.shared(), provider)
    provider.unread = [Refuse(400, text=BLIND)]
    assert chat.say("Look.", [Call("photo", {})], ["A note."]).turn == 1
    last = repr(chat.calls("Look.")[-1].request)
    assert "A file of type image/gif, which this model does not accept" in last
    assert "a photo" in last


# These have other reasons, or the request has no file.
OTHERS: dict[str, Text] = {
    "a large image": (400, None, "image exceeds 5 MB maximum: 6291456 bytes > 5242880 bytes"),
    "a rate limit": (429, None, "This model does not support image input at this rate"),
    "a key": (401, None, "Image input is not supported for this key"),
}


@pytest.mark.parametrize("reason", OTHERS)
def test_other_failures_stay_failures_of_the_model(chat: Chat, reason: str) -> None:
    chat.provider.unread = refusing(OTHERS[reason])
    reply = say(chat, "Look.", PHOTO)
    assert_failed(reply, 502, "model_failed", chat.session)


def test_a_request_without_files_is_not_sent_again(chat: Chat) -> None:
    reply = chat.say("One.", [Refuse(400, text=BLIND)], headers=JSON)
    assert_failed(reply, 502, "model_failed", chat.session)
    assert len(chat.calls("One.")) == 1


def test_an_error_about_files_in_a_stream(chat: Chat, target: targets.Target) -> None:
    code = None if "bedrock" in target.name else "invalid_request_error"
    chat.provider.unread = [Refuse(200, code, text=BLIND)]
    assert_failed(say(chat, "Look.", PHOTO), 415, "unsupported_file", chat.session)
    assert re.search(r"outcome=unsupported_file", chat.server.log)
