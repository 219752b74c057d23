"""A turn that waits for a person: it is kept beside the session, and its tools run once."""

import json
import re
import signal
import threading
import time
import uuid
from dataclasses import replace
from typing import Any

import pytest

from tests.conformance.chat import Chat, assert_done, assert_failed, echoed
from tests.conformance.client import EVENTS, JSON, KEY, Exchange
from tests.conformance.conftest import NewChat
from tests.conformance.provider import Provider
from tests.conformance.server import Fleet, Server
from tests.conformance.steps import Call, Hold, Refuse, Step
from tests.conformance.waiting import ASKED, answer, ask, delete, gate, ids, order, read, runs
from tests.conformance.wires import Entry
from tests.stores.agents import HASTY, StoreFleet
from tests.stores.proxy import Proxy
from tests.stores.servers import wait_for
from tests.stores.stores import PATIENT

pytestmark = pytest.mark.about("turns")

TURN_1 = {"turn": 1, "model": "test-model"}


@pytest.fixture
def server(approvals: Fleet) -> Server:
    return approvals.shared()


def deleted(chat: Chat, name: str = "") -> list[Entry]:
    arguments = {"order_id": order(chat, name)}
    return [("call", "delete_order", arguments), ("result", f"deleted {order(chat, name)}")]


def assert_waits(chat: Chat, waiting: list[str], turn: int = 1) -> None:
    """The tool has not run, and still can."""
    assert runs(chat) == 0
    reply = answer(chat, waiting)
    assert (reply.status, reply.json.get("turn")) == (200, turn), reply
    assert runs(chat) == 1


def test_a_call_that_needs_an_approval_waits_for_it(chat: Chat) -> None:
    reply = chat.say(ASKED, [delete(chat)], ["Deleted."], headers=JSON)
    assert (reply.status, reply.session) == (200, chat.session)
    (id,) = ids(reply)
    call = {"id": id, "tool": "delete_order", "input": {"order_id": order(chat)}}
    assert reply.json == {"session_id": chat.session, "turn": 1, "waiting": [call]}
    assert runs(chat) == 0
    assert len(chat.calls(ASKED)) == 1
    lines = [line for line in chat.server.log.splitlines() if chat.session in line]
    assert [" outcome=waiting " in line for line in lines] == [True]
    assert " turn=1 " in lines[0]


@pytest.mark.parametrize("headers", [JSON, EVENTS], ids=["JSON", "events"])
def test_a_surrogate_in_arguments_waits_as_it_will_run(headers: dict[str, str], chat: Chat) -> None:
    call = Call("delete_order", raw=r'{"order_id": "a\ud800"}')
    reply = chat.say(ASKED, [call], ["Deleted."], headers=headers)
    assert reply.status == 200, reply
    waiting = reply.json["waiting"] if headers is JSON else reply.events[-1][1]["waiting"]
    assert [it["input"] for it in waiting] == [{"order_id": "a\ufffd"}]


@pytest.mark.parametrize(
    "raw",
    [
        '{"order_id": "ORDER", "n": NaN}',
        '{"order_id": "ORDER"',
        "{'order_id': 'ORDER'}",
        '["ORDER"]',
        '{"order_id": "ORDER"}{"order_id": "b"}',
    ],
    ids=["NaN", "truncated", "Python", "list", "two"],
)
def test_nobody_is_asked_about_arguments_that_are_not_one_object(raw: str, chat: Chat) -> None:
    call = Call("delete_order", raw=raw.replace("ORDER", order(chat)))
    reply = chat.say(ASKED, [call], ["It did not run."], headers=JSON)
    assert reply.json == {**TURN_1, "session_id": chat.session, "reply": "It did not run."}
    assert runs(chat) == 0
    kind, text = chat.recalled()[-2]
    assert kind == "result"
    assert text.endswith(f"Received: {call.raw}")


@pytest.mark.parametrize("texts", [["Let me ", "see. "], []], ids=["text", "no text"])
def test_as_events_it_is_a_waiting_event(chat: Chat, texts: list[str]) -> None:
    reply = chat.say(ASKED, [*texts, delete(chat)], ["Deleted", "."], headers=EVENTS)
    assert (reply.status, reply.content_type) == (200, "text/event-stream")
    *chunks, (name, data) = reply.events
    assert chunks == [("message", text) for text in texts]
    assert name == "waiting"
    (call,) = data["waiting"]
    assert data == {"session_id": chat.session, "turn": 1, "waiting": [call]}
    assert call["input"] == {"order_id": order(chat)}
    reply = chat.post({"approve": [call["id"]]}, EVENTS)
    assert_done(reply, ["Deleted", "."], 1, chat.session)


def test_an_approved_call_runs_and_its_turn_goes_on(chat: Chat) -> None:
    chat.say("One.")
    waiting = ask(chat, ["Deleted."])
    reply = answer(chat, waiting)
    assert reply.json == {**TURN_1, "session_id": chat.session, "turn": 2, "reply": "Deleted."}
    assert runs(chat) == 1
    told = [*echoed("One."), ("user", ASKED), *deleted(chat)]
    assert chat.history(chat.calls(ASKED)[-1]) == told
    assert len(chat.calls(ASKED)) == 2
    assert chat.recalled() == [*told, ("assistant", "Deleted.")]
    assert chat.say("And?").turn == 4


@pytest.mark.parametrize("reason", ["Not today: \u00e4\n\U0001f40d!", "", None], ids=ascii)
def test_the_model_is_told_that_a_call_is_denied_and_why(chat: Chat, reason: str | None) -> None:
    (id,) = ask(chat, ["Then not."])
    denial = {"id": id} if reason is None else {"id": id, "reason": reason}
    reply = chat.post({"deny": [denial]}, JSON)
    assert reply.json == {**TURN_1, "session_id": chat.session, "reply": "Then not."}
    assert runs(chat) == 0
    call = ("call", "delete_order", {"order_id": order(chat)})
    *before, (role, result) = chat.history(chat.calls(ASKED)[-1])
    assert (before, role) == ([("user", ASKED), call], "result")
    told = reason or "no reason given"
    told = f"Denied by a person: {told}"
    assert told in result or json.dumps(told, ensure_ascii=False)[1:-1] in result
    assert chat.recalled() == [*before, (role, result), ("assistant", "Then not.")]


def test_nothing_of_a_turn_that_waits_is_in_the_session(chat: Chat) -> None:
    chat.say("One.")
    waiting = ask(chat)
    reply = chat.say("Two.", headers=JSON)
    dropped = {**TURN_1, "session_id": chat.session, "turn": 2, "dropped": True}
    assert reply.json == {**dropped, "reply": "You said: Two."}
    assert chat.history(chat.calls("Two.")[-1]) == [*echoed("One."), ("user", "Two.")]
    assert_failed(answer(chat, waiting), 409, "not_waiting", chat.session)
    assert runs(chat) == 0
    assert "dropped" not in chat.say("Three.", headers=JSON).json
    assert chat.recalled() == echoed("One.", "Two.", "Three.")


def test_an_event_tells_that_a_turn_was_dropped(chat: Chat) -> None:
    ask(chat)
    done = {**TURN_1, "session_id": chat.session, "dropped": True}
    assert chat.say("Two.").events[-1] == ("done", done)


def test_a_turn_that_fails_drops_nothing(chat: Chat) -> None:
    waiting = ask(chat)
    assert_failed(chat.say("Two.", [Refuse(400)]), 502, "model_failed", chat.session)
    assert_waits(chat, waiting)


def test_a_turn_that_waits_drops_the_one_before(chat: Chat) -> None:
    chat.say("One.", headers={KEY: "key-1"})
    first = ask(chat)
    # The second of two calls, so that its id is not the one that the model gave the first time.
    step: Step = [read(chat), delete(chat, "-2")]
    reply = chat.say("Delete another.", step, ["Deleted."], headers=JSON)
    assert reply.json["dropped"] is True
    assert_failed(answer(chat, first), 409, "not_waiting", chat.session)
    assert "dropped" not in chat.say("One.", headers={KEY: "key-1", **JSON}).json
    assert answer(chat, ids(reply)).json["reply"] == "Deleted."
    assert (runs(chat), runs(chat, name="-2")) == (0, 1)
    assert chat.recalled()[:3] == [*echoed("One."), ("user", "Delete another.")]


def test_a_call_beside_it_that_needs_none_runs_once(chat: Chat) -> None:
    steps: list[Step] = [["Hm. ", read(chat), delete(chat)], ["Done."]]
    reply = chat.say(ASKED, *steps, headers=JSON)
    (id,) = ids(reply)
    assert (runs(chat, "read_order"), runs(chat)) == (1, 0)
    reply = answer(chat, [id])
    assert reply.json["reply"] == "Hm. Done."
    assert (runs(chat, "read_order"), runs(chat)) == (1, 1)
    told = chat.history(chat.calls(ASKED)[-1])
    results = {f"order {order(chat)}", f"deleted {order(chat)}"}
    assert {entry[1] for entry in told if entry[0] == "result"} == results
    assert [entry[0] for entry in told] == ["user", "assistant", *["call"] * 2, *["result"] * 2]
    assert chat.recalled() == [*told, ("assistant", "Done.")]


def test_a_call_beside_it_that_needs_none_runs_once_when_it_is_denied(chat: Chat) -> None:
    reply = chat.say(ASKED, [delete(chat), read(chat)], ["Done."], headers=JSON)
    assert answer(chat, deny={ids(reply)[0]: "No."}).json["reply"] == "Done."
    assert (runs(chat, "read_order"), runs(chat)) == (1, 0)


def test_a_denial_is_not_that_of_a_later_call_with_the_same_id(chat: Chat) -> None:
    first, later = replace(delete(chat), id="call_0"), replace(read(chat), id="call_0")
    reply = chat.say(ASKED, [first], [later], ["Done."], headers=JSON)
    assert answer(chat, deny={ids(reply)[0]: "Not today."}).json["reply"] == "Done."
    assert (runs(chat, "read_order"), runs(chat)) == (1, 0)
    entries = chat.history(chat.calls(ASKED)[-1])
    denied, done = (str(entry[1]) for entry in entries if entry[0] == "result")
    assert "Not today." in denied
    assert done == f"order {order(chat)}"


def test_a_denied_call_does_not_run_though_its_gate_was_lifted(chat: Chat) -> None:
    calls: Step = [delete(chat, "-1"), read(chat), delete(chat, "-2")]
    one, two = ids(chat.say(ASKED, calls, ["Done."], headers=JSON))
    gate(chat)
    assert answer(chat, [one], {two: "Not this."}).json["reply"] == "Done."
    assert [runs(chat, name=name) for name in ("-1", "-2")] == [1, 0]
    assert runs(chat, "read_order") == 1
    told = [entry[1] for entry in chat.recalled() if entry[0] == "result"]
    assert len(told) == 3
    assert sum("Not this." in result for result in told) == 1
    assert f"deleted {order(chat, '-2')}" not in told


def test_a_denial_of_which_the_turn_fails_does_not_stay(chat: Chat) -> None:
    """Nor does it run the tool, though its gate was lifted."""
    (id,) = ask(chat, [Refuse(400, stays=False)], ["Deleted."])
    gate(chat)
    assert_failed(answer(chat, deny={id: "No."}), 502, "model_failed", chat.session)
    assert_waits(chat, [id])


def test_a_tool_that_has_run_beside_a_waiting_call_is_not_asked_about(chat: Chat) -> None:
    (id,) = ids(chat.say(ASKED, [delete(chat), read(chat)], ["Deleted."], headers=JSON))
    gate(chat, "delete_order", "read_order")
    assert answer(chat, [id]).json.get("reply") == "Deleted."
    assert (runs(chat, "read_order"), runs(chat)) == (1, 1)


def test_all_calls_that_wait_must_be_answered(chat: Chat) -> None:
    calls: Step = [delete(chat, "-1"), delete(chat, "-2"), delete(chat, "-3")]
    waiting = ids(chat.say(ASKED, calls, ["Done."], headers=JSON))
    assert len({*waiting}) == 3
    for answered in (waiting[:1], waiting[1:]):
        reply = answer(chat, answered)
        assert_failed(reply, 409, "not_waiting", chat.session)
        assert all(id in reply.json["error"]["message"] for id in waiting)
    assert [runs(chat, name=f"-{number}") for number in (1, 2, 3)] == [0, 0, 0]
    reply = answer(chat, [waiting[2], waiting[0]], {waiting[1]: "Not this."})
    assert reply.json["reply"] == "Done."
    assert [runs(chat, name=f"-{number}") for number in (1, 2, 3)] == [1, 0, 1]
    told = chat.history(chat.calls(ASKED)[-1])
    results = {entry[1] for entry in told if entry[0] == "result"}
    done = {f"deleted {order(chat, name)}" for name in ("-1", "-3")}
    assert done < results
    (denied,) = results - done
    assert "Not this." in denied


def test_a_turn_can_wait_several_times_and_its_reply_is_of_all_steps(chat: Chat) -> None:
    chat.say("One.")
    steps: list[Step] = [
        ["First. ", delete(chat, "-1")],
        ["Second. ", read(chat), delete(chat, "-2")],
        ["Third. ", delete(chat, "-3")],
        ["Done."],
    ]
    reply = chat.say(ASKED, *steps, headers=JSON)
    first = ids(reply)
    reply = answer(chat, first)
    assert (reply.json["turn"], runs(chat, name="-1")) == (2, 1)
    second = ids(reply)
    assert_failed(answer(chat, first), 409, "not_waiting", chat.session)
    third = ids(answer(chat, deny={second[0]: "Not this."}))
    reply = answer(chat, third)
    everything = "First. Second. Third. Done."
    assert reply.json == {**TURN_1, "session_id": chat.session, "turn": 2, "reply": everything}
    assert [runs(chat, name=f"-{number}") for number in (1, 2, 3)] == [1, 0, 1]
    assert runs(chat, "read_order") == 1
    assert len(chat.calls(ASKED)) == 4
    recalled = chat.recalled()
    assert recalled[:3] == [*echoed("One."), ("user", ASKED)]
    assert [entry[0] for entry in recalled].count("result") == 4


def test_the_ids_of_two_calls_in_one_are_none_of_them(chat: Chat) -> None:
    waiting = ids(chat.say(ASKED, [delete(chat), delete(chat, "-2")], headers=JSON))
    assert len(waiting) == 2
    for joined in (",".join(waiting), ",".join(reversed(waiting))):
        assert_failed(answer(chat, [joined]), 409, "not_waiting", chat.session)
    assert (runs(chat), runs(chat, name="-2")) == (0, 0)
    assert answer(chat, waiting).status == 200
    assert (runs(chat), runs(chat, name="-2")) == (1, 1)


def test_an_answer_is_to_one_wait_though_the_model_gives_its_calls_the_same_ids(chat: Chat) -> None:
    (old,) = ask(chat)
    (new,) = ids(chat.say("Delete the other.", [delete(chat, "-2")], headers=JSON))
    assert old.rpartition(".")[0] == new.rpartition(".")[0]
    assert_failed(answer(chat, [old]), 409, "not_waiting", chat.session)
    assert (runs(chat), runs(chat, name="-2")) == (0, 0)
    assert answer(chat, [new]).status == 200
    assert (runs(chat), runs(chat, name="-2")) == (0, 1)


def test_a_tool_that_ran_after_an_approval_does_not_run_again_after_the_next(chat: Chat) -> None:
    """Nor does what the turn before it dropped come back when a later wait is dropped."""
    chat.say("One.")
    waiting = ask(chat, [delete(chat, "-2")])
    second = ids(answer(chat, waiting))
    assert (runs(chat), runs(chat, name="-2")) == (1, 0)
    assert chat.say("Two.", headers=JSON).json["dropped"] is True
    assert_failed(answer(chat, second), 409, "not_waiting", chat.session)
    assert (runs(chat), runs(chat, name="-2")) == (1, 0)
    assert chat.recalled() == echoed("One.", "Two.")


@pytest.mark.parametrize(
    "body",
    [
        {"approve": ["no-such-call"]},
        {"deny": [{"id": "no-such-call", "reason": "No."}]},
        {"approve": ["THE ID", "no-such-call"]},
        {"approve": ["THE ID"], "deny": [{"id": "no-such-call"}]},
    ],
    ids=json.dumps,
)
def test_calls_without_approval_get_a_result_that_names_the_pending_call(
    chat: Chat, body: dict[str, Any]
) -> None:
    chat.say("One.")
    waiting = ask(chat)
    reply = chat.post(json.loads(json.dumps(body).replace("THE ID", waiting[0])), JSON)
    assert_failed(reply, 409, "not_waiting", chat.session)
    assert waiting[0] in reply.json["error"]["message"]
    assert_waits(chat, waiting, turn=2)


def test_where_nothing_waits_there_is_nothing_to_approve(chat: Chat, server: Server) -> None:
    assert_failed(answer(chat, ["call_1_0"]), 409, "not_waiting", chat.session)
    chat.say("One.")
    assert_failed(answer(chat, ["call_1_0"]), 409, "not_waiting", chat.session)
    assert chat.recalled() == echoed("One.")
    new = server.post({"approve": ["call_1_0"]}, JSON)
    assert_failed(new, 409, "not_waiting", new.session)


def bad_bodies(id: str) -> list[dict[str, Any]]:
    return [
        {"approve": id},
        {"approve": {id: True}},
        {"approve": [[id]]},
        {"approve": [1]},
        {"approve": [None]},
        {"approve": None},
        {"approve": True},
        {"approve": []},
        {"approve": [], "deny": []},
        {"approve": [id, id]},
        {"approve": [id], "deny": [{"id": id}]},
        {"approve": [id], "deny": None},
        {"deny": [id]},
        {"deny": {"id": id}},
        {"deny": [{"reason": "No."}]},
        {"deny": [{"id": 1}]},
        {"deny": [{"id": id, "reason": 1}]},
        {"deny": [{"id": id, "reason": None}]},
        {"deny": [{"id": id}, {"id": id}]},
        {"deny": [None]},
        {"approve": [id], "prompt": "Go on."},
        {"deny": [{"id": id}], "prompt": "Go on."},
        {"approve": [id], "replace_turn": 1},
        {"approve": [id], "end_session": True},
        {"deny": [{"id": id}], "end_session": True},
        {"approve": [id], "end_session": 1},
        {"approve": "no list", "end_session": True},
        {"approve": [id], "fork": "other", "at_turn": 1},
        {"deny": [{"id": id}], "fork": "other", "at_turn": 1},
        {"approve": [id], "fork": "other"},
        {"approve": [id], "at_turn": 1},
        {"deny": [{"id": id}], "at_turn": 1},
    ]


def test_an_answer_of_another_form_is_refused(chat: Chat) -> None:
    chat.say("One.")
    waiting = ask(chat)
    for body in bad_bodies(waiting[0]):
        reply = chat.post(body, JSON)
        assert (reply.status, reply.error) == (400, "invalid_request"), body
    assert chat.calls("Go on.") == []
    assert_waits(chat, waiting, turn=2)


def test_another_actor_approves_nothing(new_chat: NewChat) -> None:
    ada = new_chat(actor="ada")
    waiting = ask(ada)
    for actor in ("bob", None):
        other = new_chat(actor=actor, session=ada.session)
        for reply in (answer(other, waiting), answer(other, deny={waiting[0]: "No."})):
            assert_failed(reply, 403, "session_forbidden", ada.session)
        assert_failed(other.say("Mine."), 403, "session_forbidden", ada.session)
    assert_waits(ada, waiting)


def test_an_approval_that_is_sent_again_runs_nothing(chat: Chat) -> None:
    waiting = ask(chat, ["Deleted."])
    assert answer(chat, waiting).json["reply"] == "Deleted."
    assert_failed(answer(chat, waiting), 409, "not_waiting", chat.session)
    assert runs(chat) == 1
    assert chat.say("And?").turn == 2


def test_an_approval_that_is_sent_again_with_its_key_gets_the_same_reply(chat: Chat) -> None:
    waiting = ask(chat, ["Deleted."], headers={KEY: "key-1"})
    first = answer(chat, waiting, headers={KEY: "key-2"})
    again = answer(chat, waiting, headers={KEY: "key-2"})
    replay = {"session_id": chat.session, "turn": 1, "reply": "Deleted."}
    assert chat.say(ASKED, headers={KEY: "key-1", **JSON}).json == again.json == replay
    assert first.json == {**replay, "model": "test-model"}
    assert runs(chat) == 1
    assert len(chat.calls(ASKED)) == 2


def test_an_approval_with_the_key_of_its_prompt_is_replayed(chat: Chat) -> None:
    key = {KEY: "key-1"}
    waiting = ask(chat, ["Deleted."], headers=key)
    replies = [answer(chat, waiting, headers=key) for _ in range(2)]
    assert [reply.json.get("reply") for reply in replies] == ["Deleted."] * 2
    assert runs(chat) == 1


def test_the_same_approval_twice_at_once_runs_the_tool_once(
    chat: Chat, gate: threading.Event
) -> None:
    waiting = ask(chat, [Hold(gate), "Deleted."])
    exchanges = [chat.send({"approve": waiting}, JSON) for _ in range(3)]
    chat.call(ASKED, 2)
    gate.set()
    statuses = sorted(exchange.reply().status for exchange in exchanges)
    assert statuses == [200, 409, 409]
    assert runs(chat) == 1


def test_an_approval_behind_a_prompt_comes_too_late(chat: Chat, gate: threading.Event) -> None:
    waiting = ask(chat)
    running = chat.start("Two.", [Hold(gate), "Done."], headers=JSON)
    chat.call("Two.")
    late = chat.send({"approve": waiting}, JSON)
    chat.server.settle()
    assert not late.answered(within=0)
    gate.set()
    assert running.reply().json["dropped"] is True
    assert_failed(late.reply(), 409, "not_waiting", chat.session)
    assert runs(chat) == 0


def test_an_approval_behind_a_prompt_that_fails_is_in_time(
    chat: Chat, gate: threading.Event
) -> None:
    waiting = ask(chat, ["Deleted."])
    running = chat.start("Two.", [Hold(gate)], headers=JSON)
    chat.call("Two.")
    behind = chat.send({"approve": waiting}, JSON)
    gate.set()
    assert running.reply().status == 502
    assert behind.reply().json["reply"] == "Deleted."
    assert runs(chat) == 1


def test_a_prompt_behind_an_approval_drops_nothing(chat: Chat, gate: threading.Event) -> None:
    waiting = ask(chat, [Hold(gate), "Deleted."])
    running = chat.send({"approve": waiting}, JSON)
    chat.call(ASKED, 2)
    behind = chat.start("Two.", headers=JSON)
    chat.server.settle()
    assert not behind.answered(within=0)
    gate.set()
    assert running.reply().json["reply"] == "Deleted."
    said = {**TURN_1, "session_id": chat.session, "turn": 2, "reply": "You said: Two."}
    assert behind.reply().json == said
    assert runs(chat) == 1


def test_an_approval_with_the_key_of_the_turn_before_goes_on(chat: Chat) -> None:
    key = {KEY: "key-1"}
    chat.say("One.", headers=key)
    reply = answer(chat, ask(chat, ["Deleted."]), headers=key)
    assert reply.json == {**TURN_1, "session_id": chat.session, "turn": 2, "reply": "Deleted."}
    assert runs(chat) == 1


def test_a_prompt_that_is_sent_again_with_its_key_waits_for_the_same(chat: Chat) -> None:
    key = {KEY: "key-1", **JSON}
    chat.say("One.")
    first = chat.say(ASKED, ["Hm. ", read(chat), delete(chat)], ["Deleted."], headers=key)
    again = chat.say(ASKED, headers=key)
    assert again.json == first.json
    assert chat.say("Another text.", headers=key).json == first.json
    assert (len(chat.calls(ASKED)), runs(chat, "read_order"), runs(chat)) == (1, 1, 0)
    lines = [line for line in chat.server.log.splitlines() if chat.session in line]
    assert " outcome=replayed " in lines[-1]
    events = chat.say(ASKED, headers={KEY: "key-1", **EVENTS}).events
    assert events == [("message", "Hm. "), ("waiting", first.json)]
    reply = answer(chat, ids(again))
    assert reply.json["reply"] == "Hm. Deleted."
    # The answer had no key of its own: the prompt's is that of the turn.
    assert chat.say(ASKED, headers=key).json["reply"] == reply.json["reply"]
    assert (runs(chat, "read_order"), runs(chat)) == (1, 1)


def test_a_turn_that_waits_without_a_text_is_replayed_without_one(chat: Chat) -> None:
    key = {KEY: "key-1", **EVENTS}
    events = [chat.say(ASKED, [delete(chat)], headers=key).events for _ in range(2)]
    assert [name for name, _ in events[0]] == ["waiting"]
    assert events[1] == events[0]
    assert len(chat.calls(ASKED)) == 1


def test_a_denial_whose_model_call_fails_leaves_the_turn_waiting(chat: Chat) -> None:
    waiting = ask(chat, [Refuse(400)])
    reply = answer(chat, deny={waiting[0]: "No."})
    assert_failed(reply, 502, "model_failed", chat.session)
    chat.script(ASKED, ["Deleted."])
    assert_waits(chat, waiting)


def test_an_approval_whose_model_call_fails_is_gone_with_its_turn(chat: Chat) -> None:
    """The tool has run: whoever would go on would run it twice."""
    chat.say("One.", headers={KEY: "key-1"})
    waiting = ask(chat, [Refuse(400)])
    assert_failed(answer(chat, waiting), 502, "model_failed", chat.session)
    assert runs(chat) == 1
    assert_failed(answer(chat, waiting), 409, "not_waiting", chat.session)
    assert chat.say("One.", headers={KEY: "key-1"}).turn == 1  # a replay, as before
    assert chat.recalled() == echoed("One.")


def test_a_first_turn_that_fails_after_its_approval_leaves_no_trace(chat: Chat) -> None:
    waiting = ask(chat, [Refuse(400)])
    assert_failed(answer(chat, waiting), 502, "model_failed", chat.session)
    assert runs(chat) == 1
    assert chat.recalled() == []
    assert chat.say("Two.").turn == 2


def test_an_approval_whose_client_leaves_is_gone_with_its_turn(
    chat: Chat, gate: threading.Event
) -> None:
    chat.say("One.")
    waiting = ask(chat, ["Well, ", Hold(gate)])
    exchange = chat.send({"approve": waiting})
    assert exchange.event() == ("message", "Well, ")
    exchange.leave()
    chat.gone(ASKED)
    assert_failed(answer(chat, waiting), 409, "not_waiting", chat.session)
    assert chat.recalled() == echoed("One.")
    assert runs(chat) == 1


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_replacement_can_wait(chat: Chat, number: int) -> None:
    said = ["One.", "Two.", "Three."]
    for text in said:
        chat.say(text)
    reply = chat.replace(number, ASKED, [delete(chat)], ["Deleted."], headers=JSON)
    assert reply.json["turn"] == number
    before = said[: number - 1]
    assert chat.history(chat.calls(ASKED)[-1]) == [*echoed(*before), ("user", ASKED)]
    reply = answer(chat, ids(reply))
    assert reply.json == {**TURN_1, "session_id": chat.session, "turn": number, "reply": "Deleted."}
    turn = [("user", ASKED), *deleted(chat), ("assistant", "Deleted.")]
    assert chat.recalled() == [*echoed(*before), *turn]
    assert runs(chat) == 1


def test_a_replacement_that_waits_has_replaced_nothing_yet(chat: Chat) -> None:
    said = ["One.", "Two.", "Three."]
    for text in said:
        chat.say(text)
    reply = chat.replace(1, ASKED, [delete(chat)], headers=JSON)
    assert chat.say("Four.", headers=JSON).json["dropped"] is True
    assert_failed(answer(chat, ids(reply)), 409, "not_waiting", chat.session)
    assert chat.recalled() == echoed(*said, "Four.")


def test_a_turn_that_had_waited_can_be_replaced(chat: Chat) -> None:
    chat.say("One.")
    answer(chat, ask(chat, ["Deleted."]))
    chat.script(ASKED, [delete(chat)], ["Deleted again."])
    reply = answer(chat, ids(chat.post({"replace_turn": 2}, JSON)))
    assert (reply.json["turn"], reply.json["reply"]) == (2, "Deleted again.")
    assert runs(chat) == 2
    chat.replace(2, "Other.")
    assert chat.recalled() == echoed("One.", "Other.")


def test_an_edit_drops_a_pending_approval(chat: Chat) -> None:
    chat.say("One.")
    waiting = ask(chat)
    assert chat.replace(1, "Other.", headers=JSON).json["dropped"] is True
    assert_failed(answer(chat, waiting), 409, "not_waiting", chat.session)
    assert chat.recalled() == echoed("Other.")


def test_a_fork_does_not_wait_and_its_session_still_does(chat: Chat) -> None:
    chat.say("One.")
    waiting = ask(chat)
    copy = chat.elsewhere(session=f"fork-{uuid.uuid4()}")
    assert chat.post({"fork": copy.session, "at_turn": 1}).status == 200
    assert_failed(answer(copy, waiting), 409, "not_waiting", copy.session)
    assert_waits(chat, waiting, turn=2)
    assert copy.recalled() == echoed("One.")
    assert_failed(answer(copy, waiting), 409, "not_waiting", copy.session)
    second = chat.post({"fork": f"fork-{uuid.uuid4()}", "at_turn": 3})
    assert_failed(second, 400, "invalid_request", chat.session)


def test_a_key_of_the_session_replays_nothing_in_its_fork(chat: Chat) -> None:
    waiting = ask(chat, ["Deleted."], headers={KEY: "key-1"})
    answer(chat, waiting, headers={KEY: "key-2"})
    copy = chat.elsewhere(session=f"fork-{uuid.uuid4()}")
    assert chat.post({"fork": copy.session, "at_turn": 1}).status == 200
    for number, key in enumerate(["key-1", "key-2"]):
        reply = copy.say("Two.", headers={KEY: key, **JSON})
        assert reply.json["reply"] == "You said: Two."
        assert reply.turn == 2 + number


def test_ending_a_session_drops_its_pending_approval(chat: Chat) -> None:
    waiting = ask(chat)
    assert chat.end().json == {"session_id": chat.session, "ended": True}
    assert_failed(answer(chat, waiting), 409, "not_waiting", chat.session)
    reply = chat.say("One.", headers=JSON)
    assert reply.json == {**TURN_1, "session_id": chat.session, "reply": "You said: One."}
    assert runs(chat) == 0


def test_a_turn_that_waits_takes_nobodys_place(approvals: Fleet, provider: Provider) -> None:
    """It holds neither a lock, nor a place in the queue or among the turns."""
    busy = approvals.shared(MAX_TURNS=1, SESSION_QUEUE=1)
    chat, other = Chat(busy, provider), Chat(busy, provider)
    waiting = ask(chat)
    assert busy.get("/ping").json["status"] == "Healthy"
    assert other.say("One.").turn == 1
    others = ask(other)
    assert busy.get("/ping").json["status"] == "Healthy"
    assert answer(chat, waiting).json["turn"] == 1
    assert answer(other, others).json["turn"] == 2
    assert (runs(chat), runs(other)) == (1, 1)


@pytest.mark.slow
def test_after_its_time_a_turn_waits_no_longer(approvals: Fleet, provider: Provider) -> None:
    chat = Chat(approvals.shared(WAITING_SECONDS=1), provider)
    chat.say("One.")
    waiting = ask(chat, headers={KEY: "key-1"})
    time.sleep(1.1)
    assert_failed(answer(chat, waiting), 409, "not_waiting", chat.session)
    assert runs(chat) == 0
    reply = chat.say("Two.", headers=JSON)
    assert reply.json == {
        **TURN_1,
        "session_id": chat.session,
        "turn": 2,
        "reply": "You said: Two.",
    }
    assert chat.recalled() == echoed("One.", "Two.")


def test_a_long_session_waits_as_it_goes_on(approvals: Fleet, provider: Provider) -> None:
    chat = Chat(approvals.shared(HISTORY_MESSAGES=4), provider)
    for text in ("One.", "Two.", "Three.", "Four."):
        chat.say(text)
    reply = answer(chat, ask(chat, ["Deleted."]))
    assert reply.json == {**TURN_1, "session_id": chat.session, "turn": 5, "reply": "Deleted."}
    told = [*echoed("Three.", "Four."), ("user", ASKED)]
    assert chat.history(chat.calls(ASKED)[0]) == told
    assert chat.history(chat.calls(ASKED)[1]) == [*told, *deleted(chat)]
    # The window is of messages: this turn's four.
    assert chat.recalled() == [("user", ASKED), *deleted(chat), ("assistant", "Deleted.")]


def test_a_turn_that_is_too_large_to_wait_changes_nothing(
    approvals: Fleet, provider: Provider
) -> None:
    chat = Chat(approvals.shared(MAX_SNAPSHOT_BYTES=4000), provider)
    chat.say("One.")
    first = ask(chat)
    large = Call("delete_order", {"order_id": "x" * 4000})
    reply = chat.say("Delete much.", [large], headers=JSON)
    assert_failed(reply, 413, "session_too_large", chat.session)
    assert_waits(chat, first, turn=2)
    assert chat.recalled()[:3] == [*echoed("One."), ("user", ASKED)]


@pytest.mark.stored
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["restart", "kill -9"])
def test_another_process_goes_on_after_the_first_one_has_ended(
    approvals: StoreFleet, provider: Provider, number: signal.Signals
) -> None:
    first = approvals.fresh()
    chat = Chat(first, provider, actor="ada")
    chat.say("One.")
    step: Step = ["Hm. ", read(chat), delete(chat, "-1"), delete(chat, "-2")]
    reply = chat.say(ASKED, step, ["Done."], headers=JSON)
    first.signal(number)
    first.exit_code()
    chat = chat.elsewhere(approvals.again(first))
    one, two = ids(reply)
    stranger = Chat(chat.server, provider, chat.session, "bob")
    assert_failed(answer(stranger, [one, two]), 403, "session_forbidden", chat.session)
    reply = answer(chat, [one], {two: "Not this."})
    assert reply.json == {**TURN_1, "session_id": chat.session, "turn": 2, "reply": "Hm. Done."}
    assert [runs(chat, name=name) for name in ("-1", "-2")] == [1, 0]
    assert runs(chat, "read_order") == 1
    told = chat.history(chat.calls(ASKED)[-1])
    assert any("Not this." in entry[1] for entry in told if entry[0] == "result")
    assert chat.recalled() == [*told, ("assistant", "Done.")]


@pytest.mark.stored
def test_a_denied_call_does_not_run_where_a_deployment_has_no_gate(
    approvals: StoreFleet, server: Server, provider: Provider
) -> None:
    chat = Chat(server, provider)
    (id,) = ask(chat, ["Then not."])
    beside = chat.elsewhere(approvals.beside(server))
    gate(beside)
    assert answer(beside, deny={id: "Not today."}).json["reply"] == "Then not."
    assert runs(chat) == 0
    (result,) = (entry[1] for entry in beside.recalled() if entry[0] == "result")
    assert "Not today." in result


@pytest.mark.stored
def test_an_approved_call_of_a_tool_that_a_deployment_has_removed(
    approvals: StoreFleet, server: Server, provider: Provider
) -> None:
    """The model gets an error result for it, and the result of the other call."""
    home = approvals.home(server)
    chat = Chat(server, provider)
    pay = Call("pay", {"amount": 1, "memo": order(chat)})
    waiting = ids(chat.say(ASKED, [delete(chat), pay], ["It is gone."], headers=JSON))
    later = chat.elsewhere(approvals.start(home, home.store.address, WITHOUT="delete_order"))
    assert answer(later, waiting).json.get("reply") == "It is gone."
    results = [entry[1] for entry in later.recalled() if entry[0] == "result"]
    assert len(results) == 2
    assert "paid" in results
    assert any("delete_order" in result for result in results)
    assert runs(chat) == 0


SAVES = ["hold request", "hold reply"]


@pytest.mark.stored
@pytest.mark.parametrize("at_save", SAVES)
def test_a_process_that_is_killed_as_a_turn_begins_to_wait(
    approvals: StoreFleet, server: Server, provider: Provider, at_save: str
) -> None:
    """The session is as before, or the turn waits."""
    home = approvals.home(server)
    proxy = home.store.proxy()
    doomed = approvals.start(home, proxy.address)
    chat = Chat(doomed, provider)
    chat.say("One.")
    proxy.at_save, key = at_save, {KEY: "key-1"}
    exchange = chat.start(ASKED, [delete(chat)], headers=key)
    proxy.wait_held()
    kill(doomed, exchange, proxy)
    assert home.store.turns(chat.session) == 1
    # Its client does not know what became of it, and sends it again.
    chat = chat.elsewhere(server)
    calls = len(chat.calls(ASKED))
    chat.script(ASKED, *([[delete(chat)]] if at_save == "hold request" else []), ["Deleted."])
    waiting = ids(chat.say(ASKED, headers={**key, **JSON}))
    assert len(chat.calls(ASKED)) - calls == (at_save == "hold request")
    assert_waits(chat, waiting, turn=2)


@pytest.mark.stored
@pytest.mark.parametrize("at_save", SAVES)
def test_a_process_that_is_killed_as_it_takes_up_an_approval(
    approvals: StoreFleet, server: Server, provider: Provider, at_save: str
) -> None:
    """The turn waits, or it is gone; the tool never runs without being asked for again."""
    home = approvals.home(server)
    proxy = home.store.proxy()
    doomed = approvals.start(home, proxy.address)
    chat = Chat(doomed, provider)
    chat.say("One.")
    waiting = ask(chat, ["Deleted."])
    proxy.at_save = at_save
    exchange = chat.send({"approve": waiting})
    proxy.wait_held()
    kill(doomed, exchange, proxy)
    chat = chat.elsewhere(server)
    assert runs(chat) == 0
    if at_save == "hold request":
        assert_waits(chat, waiting, turn=2)
    else:
        assert_failed(answer(chat, waiting), 409, "not_waiting", chat.session)
        assert chat.recalled() == echoed("One.")


@pytest.mark.stored
def test_a_claim_that_the_store_makes_late_is_taken_up_by_the_retry(
    approvals: StoreFleet, server: Server, provider: Provider
) -> None:
    """The store freezes, the caller gets 503, and the tool still runs once when asked again."""
    home = approvals.home(server)
    proxy = home.store.proxy()
    home.declare(approvals.store, timeout_ms=HASTY * 1000)
    hasty = approvals.start(home, proxy.address, STORE_TIMEOUT_SECONDS=HASTY)
    chat = Chat(hasty, provider)
    # Its first turns load what later ones have: the store may be too slow for them.
    wait_for("a turn", lambda: chat.say("One.").status == 200)
    waiting = ask(chat, ["Deleted."])
    key = {KEY: "key-2"}
    proxy.at_save = "hang request"
    approval = chat.send({"approve": waiting}, {**JSON, **key})
    proxy.wait_held()
    assert_failed(approval.reply(), 503, "store_unavailable", chat.session)
    assert runs(chat) == 0
    proxy.release.set()
    wait_for("the claim", lambda: b'"claim"' in (home.store.read(chat.session) or b""))
    proxy.reset()
    assert answer(chat, waiting, headers=key).json["reply"] == "Deleted."
    assert runs(chat) == 1
    assert answer(chat, waiting, headers=key).json["reply"] == "Deleted."
    assert runs(chat) == 1


@pytest.mark.stored
def test_a_claim_that_the_store_makes_late_runs_nothing_for_a_client_that_left(
    approvals: StoreFleet, server: Server, provider: Provider
) -> None:
    """Only a commit goes on without its client: the approval stays open."""
    home = approvals.home(server)
    proxy = home.store.proxy()
    slow = approvals.start(home, proxy.address, STORE_TIMEOUT_SECONDS=PATIENT)
    chat = Chat(slow, provider)
    chat.say("One.")
    waiting = ask(chat, ["Deleted."])
    proxy.at_save = "hold request"
    leaver = chat.send({"approve": waiting}, JSON)
    proxy.wait_held()
    leaver.leave()
    slow.settle()
    proxy.release.set()
    assert_waits(chat, waiting, turn=2)
    assert chat.say("Three.").turn == 3


@pytest.mark.stored
def test_an_approval_of_a_session_that_ends_elsewhere_is_no_error_of_the_server(
    approvals: StoreFleet, server: Server, provider: Provider
) -> None:
    beside = approvals.beside(server)
    for _ in range(20):
        chat = Chat(server, provider)
        waiting = ask(chat, ["Deleted."])
        approval = chat.send({"approve": waiting}, JSON)
        end = chat.elsewhere(beside).end()
        reply = approval.reply()
        assert end.status in {200, 409}
        assert reply.status in {200, 409}, chat.server.log[-800:]
        if reply.status == 409:
            assert reply.error in {"not_waiting", "session_conflict"}
        assert runs(chat) <= 1
        if reply.status == 200:
            assert runs(chat) == 1


def kill(doomed: Server, exchange: Exchange, proxy: Proxy) -> None:
    doomed.signal(signal.SIGKILL)
    assert doomed.exit_code() == -signal.SIGKILL
    exchange.leave()
    proxy.cut()  # what was not sent on is lost
    proxy.close()


@pytest.mark.stored
def test_of_an_approval_and_a_denial_in_two_processes_one_counts(
    approvals: StoreFleet, server: Server, provider: Provider
) -> None:
    beside = approvals.beside(server)
    for _ in range(5):
        chat = Chat(server, provider)
        (id,) = ask(chat, ["Understood."])
        approval = chat.send({"approve": [id]}, JSON)
        denial = chat.elsewhere(beside).send({"deny": [{"id": id, "reason": "No."}]}, JSON)
        replies = {"approval": approval.reply(), "denial": denial.reply()}
        (counts,) = [name for name, reply in replies.items() if reply.status == 200]
        told = [entry[1] for entry in chat.recalled() if entry[0] == "result"]
        assert [text == f"deleted {order(chat)}" for text in told] == [counts == "approval"]
        assert runs(chat) == (counts == "approval")


@pytest.mark.stored
def test_of_two_processes_that_are_told_to_go_on_one_does(
    approvals: StoreFleet, server: Server, provider: Provider
) -> None:
    beside = approvals.beside(server)
    for _ in range(5):
        chat = Chat(server, provider)
        waiting = ask(chat, ["Deleted."])
        chats = [chat, chat.elsewhere(beside)] * 2
        exchanges = [each.send({"approve": waiting}, JSON) for each in chats]
        replies = [exchange.reply() for exchange in exchanges]
        assert sorted(reply.status for reply in replies) == [200, 409, 409, 409]
        refused = {reply.error for reply in replies if reply.status == 409}
        assert refused <= {"not_waiting", "session_conflict"}
        assert runs(chat) == 1
        told = [("user", ASKED), *deleted(chat), ("assistant", "Deleted.")]
        assert chat.recalled() == told


@pytest.mark.stored
def test_a_process_that_is_killed_between_an_approval_and_its_end_runs_nothing_twice(
    approvals: StoreFleet, server: Server, provider: Provider, gate: threading.Event
) -> None:
    doomed = approvals.again(server)
    chat = Chat(doomed, provider)
    chat.say("One.")
    waiting = ask(chat, [Hold(gate), "Deleted."])
    exchange = chat.send({"approve": waiting}, JSON)
    chat.call(ASKED, 2)
    doomed.signal(signal.SIGKILL)
    doomed.exit_code()
    exchange.leave()
    chat = chat.elsewhere(server)
    assert_failed(answer(chat, waiting), 409, "not_waiting", chat.session)
    assert runs(chat) == 1
    assert chat.recalled() == echoed("One.")


@pytest.mark.stored
def test_a_prompt_in_another_process_drops_a_pending_approval(
    approvals: StoreFleet, server: Server, provider: Provider
) -> None:
    chat = Chat(server, provider)
    waiting = ask(chat)
    beside = chat.elsewhere(approvals.beside(server))
    assert beside.say("One.", headers=JSON).json["dropped"] is True
    assert_failed(answer(chat, waiting), 409, "not_waiting", chat.session)
    assert chat.recalled() == echoed("One.")
    assert runs(chat) == 0


@pytest.mark.stored
def test_a_turn_that_waits_in_a_read_only_store_is_approved_only_where_it_is_saved(
    approvals: StoreFleet, provider: Provider
) -> None:
    """Each reader would run the tool."""
    writer = approvals.fresh()
    home, chat = approvals.home(writer), Chat(writer, provider)
    chat.say("One.")
    waiting = ask(chat, ["Deleted."])
    agent = home.folder / "agents" / f"{home.agent_id}.agent.md"
    text = agent.read_text()
    agent.write_text(text.replace('write_collections: ["sessions"]', "write_collections: []"))
    assert agent.read_text() != text
    for _ in range(2):
        reader = chat.elsewhere(approvals.again(writer))
        assert_failed(answer(reader, waiting), 409, "not_waiting", chat.session)
        assert runs(chat) == 0
        assert reader.say("Two.", headers=JSON).turn == 2
    assert_waits(chat, waiting, turn=2)


@pytest.mark.stored
def test_the_record_of_a_turn_that_waits_is_readable(
    approvals: StoreFleet, server: Server, provider: Provider
) -> None:
    home, new, old = approvals.home(server), Chat(server, provider), Chat(server, provider)
    old.say("One.")
    for chat, turns in ((new, 0), (old, 1)):
        waiting = ask(chat)
        assert home.store.turns(chat.session) == turns
        shown = home.run("sessions", "show", chat.session, "--json")
        assert shown.returncode == 0, shown.stderr
        report = json.loads(shown.stdout)
        assert (report["turn"], report["quarantined"]) == (turns, [])
        assert_waits(chat, waiting, turn=turns + 1)


@pytest.mark.stored
def test_a_restore_never_brings_a_turn_back_that_waited(
    approvals: StoreFleet, provider: Provider
) -> None:
    server = approvals.shared(CHECKPOINTS=5)
    home, chat = approvals.home(server), Chat(server, provider)
    chat.say("One.")
    key = {KEY: "key-1", **JSON}
    waiting = ask(chat, ["Deleted."], headers=key)
    answer(chat, waiting)
    chat.say("Three.")
    assert runs(chat) == 1
    pending = 0
    for checkpoint in home.store.checkpoints(chat.session):
        done = home.run("sessions", "restore", chat.session, checkpoint, CHECKPOINTS="5")
        assert done.returncode == 0, done.stderr
        turns = int(re.findall(r"\d+", done.stdout)[-1])
        pending += turns == 1
        assert home.store.turns(chat.session) == turns
        assert "pending" not in home.store.snapshot(chat.session)["app_data"]
        assert_failed(answer(chat, waiting), 409, "not_waiting", chat.session)
        if turns == 2:
            assert chat.say("Anew.", headers=key).json["reply"] == "Deleted.", "it holds that turn"
    assert pending > 1, "one of the checkpoints is of the turn that waits"
    assert runs(chat) == 1


def test_without_approvals_a_turn_with_such_a_call_fails_and_says_so(
    own_agents: Fleet, provider: Provider
) -> None:
    chat = Chat(own_agents.shared(), provider)
    chat.say("One.")
    reply = chat.say(ASKED, [delete(chat)], ["Deleted."], headers=JSON)
    assert_failed(reply, 502, "reply_incomplete", chat.session)
    message = reply.json["error"]["message"]
    assert message.startswith("The tool delete_order needs approval")
    events = chat.say("Delete the other.", ["Hm. ", delete(chat)], ["Deleted."])
    assert_failed(events, 502, "reply_incomplete", chat.session, after=["Hm. "])
    assert events.events[-1][1]["error"]["message"] == message
    assert_failed(chat.post({"approve": ["call_3_0"]}), 400, "invalid_request", chat.session)
    assert runs(chat) == 0
    assert chat.recalled() == echoed("One.")
    assert len(chat.calls(ASKED)) == 1
