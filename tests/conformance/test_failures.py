"""A turn that fails leaves no trace, however and whenever the model fails."""

import pytest

from tests.conformance.chat import Chat, assert_done, assert_failed, echoed
from tests.conformance.client import JSON
from tests.conformance.steps import CUT, DROP, ERROR, FADE, GARBLE, Call, End, Fail, Refuse, Step
from tests.conformance.targets import TARGETS
from tests.conformance.wires import BLANKS

pytestmark = pytest.mark.about("turns")

BUSY = {429, 503, 529}  # statuses of a provider that is at a limit or overloaded
TRIES = 3  # a vendor client may try twice more, before the first byte
COUNT = Call("word_count", {"text": "a b"})

# What the model does in its last call, and the error that a caller is told.
BEFORE_A_BYTE: dict[str, tuple[Step, str, int]] = {
    "refuses with 400": ([Refuse(400)], "model_failed", 1),
    "refuses with 401": ([Refuse(401)], "model_failed", 1),
    "refuses with 429": ([Refuse(429)], "model_failed", TRIES),
    "refuses with 500": ([Refuse(500)], "model_failed", TRIES),
    "is cut off before any text": ([CUT], "model_failed", 1),
    "fades before any text": ([FADE], "model_failed", 1),
    "has an error before any text": ([ERROR], "model_failed", 1),
    "finishes empty": ([], "empty_reply", 1),
    "finishes blank": ([" \n", "\u00a0\ufeff\u2003"], "empty_reply", 1),
    "is cut off after blanks": ([" ", "\n", CUT], "model_failed", 1),
}
MID_STREAM: dict[str, tuple[Step, str, int]] = {
    "is cut off": (["Well, ", "so", CUT], "model_failed", 1),
    "fades": (["Well, ", "so", FADE], "model_failed", 1),
    "has an error": (["Well, ", "so", ERROR], "model_failed", 1),
    "says what cannot be read": (["Well, ", "so", GARBLE], "model_failed", 1),
    "reaches its length": (["Well, ", "so", End("length")], "reply_incomplete", 1),
    "is filtered": (["Well, ", "so", End("filter")], "reply_incomplete", 1),
    "ends for a new reason": (["Well, ", "so", End("new")], "reply_incomplete", 1),
    "fades in a tool call": (
        ["Well, ", "so", Call("word_count", raw='{"text": "a'), FADE],
        "model_failed",
        1,
    ),
    "is cut off in a tool call": (
        ["Well, ", "so", Call("word_count", raw='{"text": "a'), CUT],
        "model_failed",
        1,
    ),
}
STATUS = {"model_failed": 502, "empty_reply": 502, "reply_incomplete": 502}
FAILURES = BEFORE_A_BYTE | MID_STREAM

failures = pytest.mark.parametrize("how", FAILURES)


def shown(step: Step) -> list[str]:
    """The chunks that a client sees of a failing step: none, when there is no text at all."""
    chunks = [part for part in step if isinstance(part, str)]
    return chunks if "".join(chunks).strip(BLANKS) else []


@failures
def test_a_model_that_fails_in_its_first_call(chat: Chat, how: str) -> None:
    step, error, tries = FAILURES[how]
    chat.say("One.")
    reply = chat.say("Two.", step)
    assert_failed(reply, STATUS[error], error, chat.session, after=shown(step))
    assert 1 <= len(chat.calls("Two.")) <= tries
    assert chat.recalled("Three.") == echoed("One.")


@failures
def test_a_model_that_fails_after_a_tool_call(chat: Chat, how: str) -> None:
    step, error, tries = FAILURES[how]
    chat.say("One.")
    reply = chat.say("Two.", [COUNT], step)
    assert_failed(reply, STATUS[error], error, chat.session, after=shown(step))
    assert 2 <= len(chat.calls("Two.")) <= 1 + tries
    assert chat.recalled("Three.") == echoed("One.")


@failures
def test_a_model_that_fails_after_text_and_a_tool_call(chat: Chat, how: str) -> None:
    step, error, tries = FAILURES[how]
    chat.say("One.")
    reply = chat.say("Two.", ["Let me see. ", COUNT], step)
    after = shown(["Let me see. ", *step])  # blanks, too, once there was text
    assert_failed(reply, STATUS[error], error, chat.session, after=after)
    assert 2 <= len(chat.calls("Two.")) <= 1 + tries
    assert chat.recalled("Three.") == echoed("One.")


@pytest.mark.parametrize("how", MID_STREAM)
def test_json_has_a_status_also_for_a_failure_in_mid_stream(chat: Chat, how: str) -> None:
    step, error, _ = MID_STREAM[how]
    reply = chat.say("One.", ["Let me see. ", COUNT], step, headers=JSON)
    assert_failed(reply, STATUS[error], error, chat.session)
    assert b"Well" not in reply.body
    assert chat.recalled() == []


def test_only_a_provider_that_is_busy_makes_a_caller_try_again_later(chat: Chat) -> None:
    told: dict[int, tuple[bool, bool]] = {}
    for status in (400, 401, 429, 500, 503, 529):
        reply = chat.say(f"{status}.", ["Let me see. ", COUNT], [Refuse(status)], headers=JSON)
        assert_failed(reply, 502, "model_failed", chat.session)
        seconds = int(reply.headers.get("Retry-After", 0))
        told[status] = (1 <= seconds <= 60, "retry later" in reply.json["error"]["message"].lower())
        shown = chat.say(f"{status}, too.", ["Let me see. ", COUNT], [Refuse(status)])
        assert shown.events[-1] == ("error", reply.json), "in mid-stream, too"
    assert told == {status: (status in BUSY, status in BUSY) for status in told}


@pytest.mark.slow
@pytest.mark.rows(where=lambda row: row["target"] in TARGETS)
def test_a_provider_that_is_busy_for_an_absurd_time_is_busy_for_the_usual_time(chat: Chat) -> None:
    reply = chat.say("One.", [Refuse(429, after=10**399)], headers=JSON)
    assert_failed(reply, 502, "model_failed", chat.session)
    assert reply.headers["Retry-After"] == "10"


@pytest.mark.parametrize(
    ("kind", "is_busy"),
    [("overloaded", True), ("limit", True), ("server", False), ("request", False)],
)
def test_an_error_in_a_stream_is_busy_as_its_status_would_be(
    chat: Chat, kind: str, is_busy: bool
) -> None:
    reply = chat.say("One.", [Fail(kind)], headers=JSON)
    assert_failed(reply, 502, "model_failed", chat.session)
    assert ("Retry-After" in reply.headers) == is_busy


def test_a_retry_of_the_vendors_client_leaves_no_trace_either(chat: Chat) -> None:
    chat.say("One.")
    reply = chat.say("Two.", [COUNT], [Refuse(500, stays=False)], ["Two."])
    if reply.status == 200:
        assert_done(reply, ["Two."], turn=2, session=chat.session)
        calls = [("call", "word_count", {"text": "a b"}), ("result", "2")]
        assert chat.recalled()[2:] == [("user", "Two."), *calls, ("assistant", "Two.")]
    else:
        assert_failed(reply, 502, "model_failed", chat.session)
        assert chat.recalled() == echoed("One.")


@pytest.mark.slow
def test_a_provider_that_closes_the_connection_without_a_word(chat: Chat) -> None:
    chat.say("One.")
    assert_failed(chat.say("Two.", [DROP]), 502, "model_failed", chat.session)
    assert 1 <= len(chat.calls("Two.")) <= TRIES
    assert chat.recalled("Three.") == echoed("One.")


@pytest.mark.about("all")
def test_failures_do_not_count_as_turns(chat: Chat) -> None:
    assert chat.say("One.").turn == 1
    chat.say("Two.", ["Well, ", CUT])
    chat.say("Three.", [Refuse(400)])
    assert chat.say("Four.").turn == 2
    assert chat.recalled() == echoed("One.", "Four.")


@pytest.mark.about("all")
def test_a_failed_prompt_can_be_sent_again(chat: Chat) -> None:
    chat.say("Two.", [COUNT], ["Well, ", CUT])
    assert_done(chat.say("Two."), ["You said: ", "Two."], turn=1, session=chat.session)
    assert chat.recalled() == echoed("Two.")


def test_a_model_that_never_stops_calling_tools_is_stopped(chat: Chat) -> None:
    chat.say("One.")
    reply = chat.say("Two.", [COUNT], endless=True)
    assert_failed(reply, 502, "reply_incomplete", chat.session)
    assert len(chat.calls("Two.")) == 10
    assert chat.recalled("Three.") == echoed("One.")


def test_a_model_that_talks_and_never_stops_calling_tools_is_stopped(chat: Chat) -> None:
    reply = chat.say("Two.", ["Hm. ", COUNT], endless=True)
    assert_failed(reply, 502, "reply_incomplete", chat.session, after=["Hm. "] * 10)
    assert chat.recalled("Three.") == []


def test_the_last_step_that_is_allowed_may_finish_the_turn(chat: Chat) -> None:
    reply = chat.say("Two.", *[[COUNT]] * 9, ["At last."])
    assert_done(reply, ["At last."], turn=1, session=chat.session)
    assert len(chat.calls("Two.")) == 10
