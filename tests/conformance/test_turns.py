"""A turn that goes well: what is streamed, what is remembered, and by whom."""

import threading
import uuid

from tests.conformance.chat import Chat, assert_done, echoed
from tests.conformance.client import JSON, KEY
from tests.conformance.conftest import NewChat
from tests.conformance.provider import Provider
from tests.conformance.server import Server
from tests.conformance.steps import Call, Hold, Step
from tests.conformance.targets import Target


def test_chunks_arrive_as_the_model_wrote_them(chat: Chat) -> None:
    reply = chat.say("Hello.", ["Good ", "morning", ", Ada."])
    assert_done(reply, ["Good ", "morning", ", Ada."], turn=1, session=chat.session)
    assert len(chat.calls("Hello.")) == 1
    assert chat.recalled() == [("user", "Hello."), ("assistant", "Good morning, Ada.")]


def test_a_chunk_is_sent_on_before_the_next_one_is_there(chat: Chat, gate: threading.Event) -> None:
    exchange = chat.start("Hello.", ["Good ", Hold(gate), "morning."])
    assert exchange.event() == ("message", "Good ")
    gate.set()
    assert exchange.event() == ("message", "morning.")
    assert exchange.reply().turn == 1


def test_a_session_recalls_its_turns_in_order(chat: Chat) -> None:
    assert [chat.say(text).turn for text in ("One.", "Two.", "Three.")] == [1, 2, 3]
    assert chat.recalled() == echoed("One.", "Two.", "Three.")


def test_sessions_do_not_hear_of_each_other(new_chat: NewChat) -> None:
    ada, bob = new_chat(), new_chat()
    ada.say("I am Ada.")
    bob.say("I am Bob.")
    ada.say("I like tea.")
    assert bob.recalled() == echoed("I am Bob.")
    assert ada.recalled() == echoed("I am Ada.", "I like tea.")


def test_text_before_and_after_a_tool_is_one_reply(chat: Chat) -> None:
    counting: Step = ["Let me ", "count. ", Call("word_count", {"text": "a b c"})]
    reply = chat.say("Count.", counting, ["Three", "."])
    assert_done(reply, ["Let me ", "count. ", "Three", "."], turn=1, session=chat.session)
    assert len(chat.calls("Count.")) == 2
    assert chat.recalled() == [
        ("user", "Count."),
        ("assistant", "Let me count. "),
        ("call", "word_count", {"text": "a b c"}),
        ("result", "3"),
        ("assistant", "Three."),
    ]


def test_json_carries_the_reply_that_events_would_carry(chat: Chat, target: Target) -> None:
    counting: Step = ["Let me count. ", Call("word_count", {"text": "a b"})]
    reply = chat.say("Count.", counting, ["Two."], headers=JSON)
    body = {"session_id": chat.session, "turn": 1, "model": target.model}
    assert reply.json == {**body, "reply": "Let me count. Two."}


def test_a_turn_may_begin_with_a_tool_and_use_several(chat: Chat) -> None:
    both = [Call("word_count", {"text": "a"}), Call("word_count", {"text": "a b"})]
    reply = chat.say("Count.", both, [Call("word_count", {"text": "a b c"})], ["Done."])
    assert_done(reply, ["Done."], turn=1, session=chat.session)
    history = chat.recalled()
    results = [entry for entry in history if entry[0] == "result"]
    assert results == [("result", "1"), ("result", "2"), ("result", "3")]
    assert [entry[0] for entry in history] == [
        *("user", "call", "call", "result", "result"),
        *("call", "result", "assistant"),
    ]


def goes_on(chat: Chat, call: Call) -> None:
    """The tool's failure is the model's business: it is told, and the turn is committed."""
    reply = chat.say("Count.", ["Well. ", call], ["I could not."])
    assert_done(reply, ["Well. ", "I could not."], turn=1, session=chat.session)
    _, second = chat.calls("Count.")
    told = chat.history(second)
    assert [entry[0] for entry in told] == ["user", "assistant", "call", "result"]
    assert told[2][1] == call.name
    assert told[3][1].strip()
    assert chat.recalled() == [*told, ("assistant", "I could not.")]


def test_a_tool_that_raises_does_not_fail_the_turn(chat: Chat) -> None:
    goes_on(chat, Call("word_count", {"text": {"not": "a text"}}))


def test_a_tool_call_without_its_argument_does_not_fail_the_turn(chat: Chat) -> None:
    goes_on(chat, Call("word_count", {}))


def test_tool_arguments_that_are_not_json_do_not_fail_the_turn(chat: Chat) -> None:
    goes_on(chat, Call("word_count", raw='{"text": "a b'))


def test_a_tool_call_with_empty_arguments_does_not_fail_the_turn(chat: Chat) -> None:
    goes_on(chat, Call("word_count", raw=""))


def test_an_unknown_tool_does_not_fail_the_turn(chat: Chat) -> None:
    goes_on(chat, Call("no_such_tool", {"text": "a b"}))


def test_the_model_is_told_the_same_after_a_failed_tool_as_before(chat: Chat) -> None:
    chat.say("One.")
    chat.say("Count.", [Call("no_such_tool", {})], ["No."])
    history = chat.recalled()
    assert history[:2] == echoed("One.")
    assert history[-1] == ("assistant", "No.")


def test_a_request_without_a_session_gets_one_of_its_own(
    server: Server, provider: Provider, target: Target
) -> None:
    first = server.post({"prompt": "I am nobody."})
    second = server.post({"prompt": "Who am I?"})
    assert first.session != second.session
    for reply in (first, second):
        assert reply.session == str(uuid.UUID(reply.session))
        done = {"session_id": reply.session, "turn": 1, "model": target.model}
        assert reply.events[-1] == ("done", done)
    assert provider.calls_for("Who am I?")[-1].history == [("user", "Who am I?")]


def test_the_minted_session_can_be_continued(server: Server, provider: Provider) -> None:
    minted = server.post({"prompt": "Remember tea."}).session
    chat = Chat(server, provider, session=minted)
    assert chat.recalled() == echoed("Remember tea.")


def test_a_key_has_no_use_without_a_session(server: Server) -> None:
    assert server.post({"prompt": "Hello."}, {KEY: "k1"}).error == "invalid_request"
