"""fork: a new session of the first turns of another one; none is ever overwritten."""

import json
import signal
import threading
import uuid

import pytest

from tests.conformance.chat import Chat, assert_failed, echoed
from tests.conformance.client import EVENTS, KEY, Reply
from tests.conformance.conftest import NewChat
from tests.conformance.provider import Provider
from tests.conformance.server import Server
from tests.conformance.steps import Call, Hold
from tests.stores.agents import StoreFleet
from tests.stores.stores import KINDS

pytestmark = pytest.mark.about("sessions")

SAID = ["One.", "Two.", "Three."]


@pytest.fixture
def told(chat: Chat) -> Chat:
    """A session of three turns."""
    assert [chat.say(text).turn for text in SAID] == [1, 2, 3]
    return chat


@pytest.fixture
def copy(told: Chat) -> Chat:
    """A session that is to be made."""
    return told.elsewhere(session=f"fork-{uuid.uuid4()}")


def fork(chat: Chat, copy: Chat, at: object, key: str = "") -> Reply:
    return chat.post({"fork": copy.session, "at_turn": at}, {KEY: key} if key else {})


def assert_nothing_happened(told: Chat, copy: Chat) -> None:
    assert copy.recalled("Who are you?") == []
    assert told.recalled() == echoed(*SAID)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_fork_has_the_first_turns_and_nothing_else(told: Chat, copy: Chat, number: int) -> None:
    reply = fork(told, copy, number)
    assert (reply.status, reply.content_type) == (200, "application/json")
    assert reply.json == {"session_id": told.session, "fork": copy.session, "turn": number}
    assert reply.session == told.session
    assert copy.recalled() == echoed(*SAID[:number])
    assert copy.say("And?").turn == number + 2
    assert told.recalled() == echoed(*SAID)


def test_a_session_and_its_fork_go_on_without_each_other(told: Chat, copy: Chat) -> None:
    fork(told, copy, 2)
    copy.say("Left.")
    told.say("Right.")
    copy.replace(1, "First.")
    assert told.recalled() == echoed(*SAID, "Right.")
    assert copy.recalled() == echoed("First.")
    copy.end()
    assert told.recalled("And?") == echoed(*SAID, "Right.", "What do you remember?")


def test_a_fork_can_be_forked_and_edited(told: Chat, copy: Chat) -> None:
    third = told.elsewhere(session=f"fork-{uuid.uuid4()}")
    fork(told, copy, 3)
    assert fork(copy, third, 2).status == 200
    assert third.post({"replace_turn": 2}).turn == 2
    assert third.recalled() == echoed("One.", "Two.")


def test_the_calls_of_tools_are_copied_with_their_turns(chat: Chat) -> None:
    chat.say("Count.", [Call("word_count", {"text": "a b"})], ["Two."])
    chat.say("Three.")
    copy = chat.elsewhere(session=f"fork-{uuid.uuid4()}")
    fork(chat, copy, 1)
    call = ("call", "word_count", {"text": "a b"})
    assert copy.recalled() == [("user", "Count."), call, ("result", "2"), ("assistant", "Two.")]


def test_the_answer_is_json_for_every_accept_header(told: Chat, copy: Chat) -> None:
    reply = told.post({"fork": copy.session, "at_turn": 1}, EVENTS)
    assert reply.json == {"session_id": told.session, "fork": copy.session, "turn": 1}


def test_a_session_that_exists_is_not_overwritten(told: Chat, copy: Chat) -> None:
    copy.say("I am here.")
    assert_failed(fork(told, copy, 2), 409, "session_conflict", told.session)
    assert copy.recalled() == echoed("I am here.")
    assert told.recalled() == echoed(*SAID)


def test_a_fork_onto_itself_is_refused(told: Chat) -> None:
    assert_failed(fork(told, told, 2), 409, "session_conflict", told.session)
    assert told.recalled() == echoed(*SAID)


def test_a_second_fork_of_the_same_name_is_refused(told: Chat, copy: Chat) -> None:
    assert fork(told, copy, 2).status == 200
    assert_failed(fork(told, copy, 2), 409, "session_conflict", told.session)
    assert copy.recalled() == echoed("One.", "Two.")


def test_turns_of_other_sessions_are_refused(told: Chat, copy: Chat) -> None:
    for at in (0, -1, 4, 1.5, True, "1", None, 2**60, [1]):
        reply = fork(told, copy, at)
        assert_failed(reply, 400, "invalid_request", told.session)
        named = "No turn 4: the session holds turns 1 to 3." if at == 4 else "at_turn"
        assert named in reply.json["error"]["message"]
    assert_nothing_happened(told, copy)


def test_a_fork_without_a_turn_is_refused(told: Chat, copy: Chat) -> None:
    assert_failed(told.post({"fork": copy.session}), 400, "invalid_request", told.session)
    assert_nothing_happened(told, copy)


def test_invalid_session_ids_are_refused(told: Chat) -> None:
    ids: list[object] = ["", "no good", "-a", "a" * 257, "a\n", 5, True, False, [], {}, None]
    for id in ids:
        reply = told.post({"fork": id, "at_turn": 1})
        assert_failed(reply, 400, "invalid_request", told.session)
    assert told.recalled() == echoed(*SAID)


def test_a_fork_with_a_prompt_is_refused(told: Chat, copy: Chat) -> None:
    body = {"fork": copy.session, "at_turn": 1, "prompt": f"Go on.{told.tag}"}
    assert_failed(told.post(body), 400, "invalid_request", told.session)
    assert_nothing_happened(told, copy)


@pytest.mark.parametrize("other", [{"end_session": True}, {"replace_turn": 1}], ids=str)
def test_a_fork_that_also_asks_for_something_else_is_refused(
    told: Chat, copy: Chat, other: dict[str, object]
) -> None:
    reply = told.post({"fork": copy.session, "at_turn": 1, **other})
    assert_failed(reply, 400, "invalid_request", told.session)
    assert_nothing_happened(told, copy)


def test_a_fork_needs_a_session(server: Server) -> None:
    reply = server.post({"fork": "new", "at_turn": 1})
    assert_failed(reply, 400, "invalid_request", reply.session)


def test_a_session_that_nobody_knows_or_that_has_ended_cannot_be_forked(
    told: Chat, copy: Chat
) -> None:
    unknown = told.elsewhere(session=f"session-{uuid.uuid4()}")
    assert_failed(fork(unknown, copy, 1), 400, "invalid_request", unknown.session)
    told.end()
    assert_failed(fork(told, copy, 1), 400, "invalid_request", told.session)
    assert copy.recalled() == []


def test_another_actors_session_cannot_be_forked(new_chat: NewChat) -> None:
    ada = new_chat(actor="ada")
    ada.say("It is mine.")
    bob = new_chat(actor="bob", session=ada.session)
    copy = new_chat(actor="bob")
    assert_failed(fork(bob, copy, 1), 403, "session_forbidden", ada.session)
    assert copy.recalled() == []
    assert ada.recalled() == echoed("It is mine.")


def test_another_actors_session_is_not_overwritten(new_chat: NewChat) -> None:
    ada, bob = new_chat(actor="ada"), new_chat(actor="bob")
    ada.say("I am Ada.")
    bob.say("I am Bob.")
    assert_failed(fork(ada, bob, 1), 403, "session_forbidden", ada.session)
    assert bob.recalled() == echoed("I am Bob.")


def test_a_fork_belongs_to_the_actor_of_its_session(new_chat: NewChat) -> None:
    ada = new_chat(actor="ada")
    ada.say("It is mine.")
    copy = ada.elsewhere(session=f"fork-{uuid.uuid4()}")
    fork(ada, copy, 1)
    bob = new_chat(actor="bob", session=copy.session)
    assert_failed(bob.say("Let me in."), 403, "session_forbidden", copy.session)
    assert copy.recalled() == echoed("It is mine.")


def test_a_key_of_the_session_replays_nothing_in_its_fork(told: Chat, copy: Chat) -> None:
    told.say("Four.", headers={KEY: "key-1"})
    fork(told, copy, 4)
    assert copy.say("Four.", headers={KEY: "key-1"}).turn == 5
    assert told.say("Four.", headers={KEY: "key-1"}).turn == 4


def test_a_key_of_an_older_turn_replays_nothing_in_a_fork(told: Chat, copy: Chat) -> None:
    told.say("Four.", headers={KEY: "key-1"})
    told.say("Five.")
    fork(told, copy, 5)
    assert copy.say("Four.", headers={KEY: "key-1"}).turn == 6
    assert copy.say("Seven.").turn == 7
    assert copy.say("Four.", headers={KEY: "key-1"}).turn == 6, "by now it is a key of the fork"


def test_a_fork_is_repeated_with_its_key(told: Chat, copy: Chat) -> None:
    first = fork(told, copy, 2, "key-f")
    assert fork(told, copy, 2, "key-f").json == first.json
    assert copy.say("And?").turn == 3
    refused = fork(told, copy, 2, "another")
    assert_failed(refused, 409, "session_conflict", told.session)
    told.end()
    assert fork(told, copy, 2, "key-f").json == first.json
    assert copy.recalled() == echoed("One.", "Two.", "And?")


def test_of_a_long_session_only_the_turns_that_it_holds_can_be_forked(
    small: Server, provider: Provider
) -> None:
    chat = Chat(small, provider)
    for text in ("One.", "Two.", "Three.", "Four.", "Five."):
        chat.say(text)
    copy = chat.elsewhere(session=f"fork-{uuid.uuid4()}")
    reply = fork(chat, copy, 2)
    assert_failed(reply, 400, "invalid_request", chat.session)
    assert "turns 3 to 5" in reply.json["error"]["message"]
    fork(chat, copy, 4)
    assert copy.recalled() == echoed("Three.", "Four.")
    assert copy.say("And?").turn == 6


def test_a_fork_waits_for_the_turn_before_it(told: Chat, copy: Chat, gate: threading.Event) -> None:
    running = told.start("Four.", [Hold(gate), "Done."])
    told.call("Four.")
    forked = told.send({"fork": copy.session, "at_turn": 4})
    told.server.settle()
    assert not forked.answered(within=0)
    gate.set()
    assert running.reply().turn == 4
    assert forked.reply().json["turn"] == 4
    assert copy.recalled() == [*echoed(*SAID), ("user", "Four."), ("assistant", "Done.")]


def test_forks_of_two_sessions_onto_each_other_end(told: Chat, new_chat: NewChat) -> None:
    other = new_chat()
    other.say("Other.")
    exchanges = [
        chat.send({"fork": to.session, "at_turn": 1})
        for chat, to in ((told, other), (other, told)) * 4
    ]
    assert {exchange.reply().status for exchange in exchanges} <= {409, 429}
    assert told.recalled() == echoed(*SAID)


@pytest.mark.stored
def test_a_fork_goes_on_in_another_process(
    told: Chat, copy: Chat, fleet: StoreFleet, server: Server
) -> None:
    beside = fleet.beside(server)
    fork(told.elsewhere(beside), copy, 2)
    assert copy.recalled() == echoed("One.", "Two.")
    assert copy.elsewhere(beside).say("And?").turn == 4


@pytest.mark.stored
def test_of_two_forks_of_one_name_in_two_processes_one_is_made(
    told: Chat, copy: Chat, fleet: StoreFleet, server: Server
) -> None:
    beside = told.elsewhere(fleet.beside(server))
    exchanges = {
        number: chat.send({"fork": copy.session, "at_turn": number})
        for number, chat in ((1, told), (2, beside))
    }
    replies = {number: exchange.reply() for number, exchange in exchanges.items()}
    (made,) = [number for number, reply in replies.items() if reply.status == 200]
    assert_failed(replies[3 - made], 409, "session_conflict", told.session)
    assert copy.recalled() == echoed(*SAID[:made])


@pytest.mark.stored
def test_of_equal_forks_in_two_processes_one_is_made(
    told: Chat, fleet: StoreFleet, server: Server
) -> None:
    beside = told.elsewhere(fleet.beside(server))
    for _ in range(10):
        body = {"fork": f"fork-{uuid.uuid4()}", "at_turn": 2}
        exchanges = [chat.send(body) for chat in (told, beside)]
        statuses = sorted(exchange.reply().status for exchange in exchanges)
        assert statuses == [200, 409]


@pytest.mark.stored
@pytest.mark.rows(where=lambda row: KINDS[row["target"].store].expires)
def test_a_session_that_has_vanished_cannot_be_forked(
    told: Chat, copy: Chat, fleet: StoreFleet, server: Server
) -> None:
    fleet.home(server).store.expire(told.session)
    assert_failed(fork(told, copy, 1), 400, "invalid_request", told.session)
    assert copy.recalled() == []


@pytest.mark.stored
@pytest.mark.parametrize("is_made", [False, True], ids=["before the save", "after the save"])
def test_a_fork_whose_process_is_killed_is_whole_or_is_not(
    told: Chat, copy: Chat, fleet: StoreFleet, server: Server, is_made: bool
) -> None:
    home = fleet.home(server)
    proxy = home.store.proxy()
    doomed = fleet.start(home, proxy.address)
    assert told.elsewhere(doomed).say("Four.").turn == 4
    proxy.at_save = "hold reply" if is_made else "hold request"
    exchange = told.elsewhere(doomed).send({"fork": copy.session, "at_turn": 2})
    proxy.wait_held()
    doomed.signal(signal.SIGKILL)
    assert doomed.exit_code() == -signal.SIGKILL
    exchange.leave()
    proxy.cut()
    proxy.close()
    if is_made:
        stored = json.loads(home.store.read(copy.session) or b"")
        assert stored["app_data"]["turn"] == 2
    assert copy.recalled() == (echoed("One.", "Two.") if is_made else [])
    assert told.recalled() == echoed(*SAID, "Four.")
