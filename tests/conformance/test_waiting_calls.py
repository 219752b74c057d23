"""A call that waits: what is shown is what runs, and an answer is to that call."""

import json
from dataclasses import replace

import pytest

from tests.conformance.chat import Chat, assert_failed
from tests.conformance.client import EVENTS, JSON
from tests.conformance.provider import Provider
from tests.conformance.server import Fleet, Server
from tests.conformance.steps import Call, Step
from tests.conformance.waiting import ASKED, answer, close, delete, ids, order, read, runs

pytestmark = pytest.mark.about("turns")


@pytest.fixture
def server(approvals: Fleet) -> Server:
    return approvals.shared()


def paid(chat: Chat) -> list[str]:
    """The arguments of the payments of this server, oldest first."""
    path = chat.server.folder / "runs"
    lines = path.read_text().split("\n") if path.exists() else []
    return [line.removeprefix("pay ") for line in lines if line.startswith("pay ")]


AMOUNTS = {
    "9007199254740993": "2^53 + 1",
    "-123456789012345678901234567890": "30 digits",
    "1.0": "1.0",
    "-0.0": "-0.0",
    "0.1": "0.1",
    "1e21": "1e21",
    "1E-7": "1E-7",
}


@pytest.mark.parametrize("amount", AMOUNTS, ids=AMOUNTS.get)
def test_the_number_that_is_shown_is_the_number_that_runs(
    chat: Chat, approvals: Fleet, amount: str
) -> None:
    call = Call("pay", raw=f'{{"amount": {amount}}}')
    reply = chat.say(ASKED, [call], ["Paid."], headers=JSON)
    shown = reply.json["waiting"][0]["input"]["amount"]
    before = len(paid(chat))
    assert answer(chat, ids(reply)).status == 200
    (arguments,) = paid(chat)[before:]
    ran, _ = json.loads(arguments)
    # Node has no other numbers than those of JavaScript, and writes 1.0 as 1.
    assert (float(shown), str(shown)) == (float(ran), str(ran))
    if not approvals.target.is_node:
        assert json.loads(amount) == ran


HIDDEN = "a\u202eb\u2066c\u200f\u061c\u200b\x07\x85\n\u2028\U000e0041\ufeff"


def test_the_text_that_is_shown_is_the_text_that_runs(chat: Chat) -> None:
    call = Call("pay", {"amount": 1, "memo": HIDDEN})
    reply = chat.say(ASKED, [call], ["Paid."], headers=JSON)
    assert reply.json["waiting"][0]["input"]["memo"] == HIDDEN
    before = len(paid(chat))
    assert answer(chat, ids(reply)).status == 200
    assert [json.loads(arguments) for arguments in paid(chat)[before:]] == [[1, HIDDEN]]


@pytest.mark.parametrize("raw", ['{"amount": 1, "memo": "a"}', '{"memo": "a", "amount": 1}'])
def test_the_arguments_stay_in_the_order_of_the_model(
    chat: Chat, approvals: Fleet, raw: str
) -> None:
    reply = chat.say(ASKED, [Call("pay", raw=raw)], headers=JSON)
    shown = reply.json["waiting"][0]["input"]
    # The AI SDK in TypeScript runs what the tool's schema makes of them, and that is shown.
    is_parsed = approvals.target.name.startswith("vercel-typescript")
    assert shown == json.loads(raw) if is_parsed else json.dumps(shown) == raw


def test_of_a_key_that_is_there_twice_the_value_is_shown_that_runs(chat: Chat) -> None:
    raw = '{"amount": 1, "memo": "a", "amount": 2, "memo": "b"}'
    reply = chat.say(ASKED, [Call("pay", raw=raw)], ["Paid."], headers=JSON)
    assert reply.json["waiting"][0]["input"] == {"amount": 2, "memo": "b"}
    before = len(paid(chat))
    assert answer(chat, ids(reply)).status == 200
    assert [json.loads(arguments) for arguments in paid(chat)[before:]] == [[2, "b"]]


PAIRS = [
    ("A", "z:A"),
    ("z:A", "A"),
    ("a", "ab"),
    ("ab", "a"),
    ("call.1", "call"),
    ("call", "call.1"),
    ("a.b", "a.b.c"),
    ("x:a", "a:x"),
]


@pytest.mark.parametrize(("approved", "denied"), PAIRS)
def test_an_approval_is_of_no_call_whose_id_looks_alike(
    chat: Chat, approved: str, denied: str
) -> None:
    calls = [replace(delete(chat, "-1"), id=approved), replace(delete(chat, "-2"), id=denied)]
    first, second = ids(chat.say(ASKED, calls, ["Done."], headers=JSON))
    assert answer(chat, [first], {second: "Not this."}).status == 200
    assert [runs(chat, name=name) for name in ("-1", "-2")] == [1, 0]
    entries = chat.history(chat.calls(ASKED)[-1])
    results = [str(entry[1]) for entry in entries if entry[0] == "result"]
    assert ["Not this." in result for result in results] == [False, True]


def test_one_approval_never_runs_two_calls_with_the_same_id(chat: Chat) -> None:
    calls = [replace(delete(chat, name), id="call_0") for name in ("-1", "-2")]
    reply = chat.say(ASKED, calls, ["Done."], headers=JSON)
    if reply.status == 502:
        assert_failed(reply, 502, "model_failed", chat.session)
    else:
        first, second = ids(reply)
        assert first != second
        assert_failed(answer(chat, [first]), 409, "not_waiting", chat.session)
        assert answer(chat, [first], {second: "No."}).status == 200
        assert runs(chat, name="-1") == 1
    assert runs(chat, name="-2") == 0


@pytest.mark.parametrize("number", ["1e400", "-1e400", "NaN", "Infinity"])
def test_nobody_is_asked_about_a_number_that_cannot_be_shown(chat: Chat, number: str) -> None:
    before = len(paid(chat))
    call = Call("pay", raw=f'{{"amount": {number}}}')
    reply = chat.say(ASKED, [call], ["It did not run."], headers=JSON)
    assert (reply.status, reply.json.get("reply")) == (200, "It did not run."), reply
    assert len(paid(chat)) == before


def test_calls_wait_in_the_order_of_the_model(chat: Chat) -> None:
    calls = [Call("pay", {"amount": number}, id=str(number)) for number in (3, 1, 2)]
    reply = chat.say(ASKED, calls, ["Paid."], headers=JSON)
    assert [call["input"]["amount"] for call in reply.json["waiting"]] == [3, 1, 2]


def test_an_approved_call_of_a_final_tool_ends_the_turn(chat: Chat) -> None:
    refund = Call("refund", {"order_id": order(chat)})
    reply = chat.say(ASKED, [refund], ["Never said."], headers=JSON)
    answered = answer(chat, ids(reply))
    assert answered.json.get("reply") == f"refunded {order(chat)}", answered
    assert len(chat.calls(ASKED)) == 1
    assert runs(chat, "refund") == 1
    assert chat.recalled()[-1] == ("assistant", f"refunded {order(chat)}")


def test_a_denied_call_of_a_final_tool_ends_no_turn(chat: Chat) -> None:
    refund = Call("refund", {"order_id": order(chat)})
    reply = chat.say(ASKED, [refund], ["Not refunded."], headers=JSON)
    answered = answer(chat, deny=dict.fromkeys(ids(reply), "too much"))
    assert answered.json["reply"] == "Not refunded."


@pytest.mark.parametrize("approves", [True, False], ids=["approved", "denied"])
def test_a_final_tool_beside_a_waiting_call_ends_the_turn_after_the_answer(
    chat: Chat, approves: bool
) -> None:
    step: Step = ["Hm. ", close(chat), delete(chat)]
    waiting = ids(chat.say(ASKED, step, ["Never said."], headers=JSON))
    assert len(waiting) == 1
    answers = {} if approves else dict.fromkeys(waiting, "not now")
    answered = answer(chat, waiting if approves else [], answers)
    assert answered.json.get("reply") == f"Hm. closed {order(chat)}", answered
    assert len(chat.calls(ASKED)) == 1
    assert (runs(chat, "close_order"), runs(chat)) == (1, approves)
    *_, first, second, last = chat.recalled()
    assert {first[0], second[0]} == {"result"}
    assert f"closed {order(chat)}" in {first[1], second[1]}
    assert last == ("assistant", f"closed {order(chat)}")


def test_no_text_of_a_final_tool_comes_before_the_answer(chat: Chat) -> None:
    reply = chat.say(ASKED, ["Hm. ", close(chat), delete(chat)], headers=EVENTS)
    assert [name for name, _ in reply.events] == ["message", "waiting"]
    approve = [call["id"] for call in reply.events[-1][1]["waiting"]]
    reply = chat.post({"approve": approve}, EVENTS)
    assert reply.events[0] == ("message", f"closed {order(chat)}")
    assert [name for name, _ in reply.events] == ["message", "done"]


def test_of_two_final_tools_the_first_call_gives_the_reply(chat: Chat) -> None:
    refund = Call("refund", {"order_id": order(chat)})
    reply = chat.say(ASKED, [refund, close(chat)], ["Never said."], headers=JSON)
    assert answer(chat, ids(reply)).json["reply"] == f"refunded {order(chat)}"
    assert len(chat.calls(ASKED)) == 1


@pytest.mark.parametrize("id", ["__proto__", "constructor", "prototype", "toString"])
def test_a_call_whose_id_is_a_property_of_objects_runs_once(chat: Chat, id: str) -> None:
    calls = [replace(read(chat), id=id), delete(chat)]
    waiting = ids(chat.say(ASKED, calls, ["Done."], headers=JSON))
    assert answer(chat, waiting).json["reply"] == "Done."
    assert (runs(chat, "read_order"), runs(chat)) == (1, 1)


@pytest.mark.parametrize("id", ["__proto__", "constructor", "prototype", "toString"])
def test_a_call_whose_id_is_a_property_of_objects_waits(chat: Chat, id: str) -> None:
    waiting = ids(chat.say(ASKED, [replace(delete(chat), id=id)], ["Done."], headers=JSON))
    assert len(waiting) == 1
    assert answer(chat, waiting).json["reply"] == "Done."
    assert runs(chat) == 1


@pytest.mark.parametrize("name", ["__proto__", "constructor", "prototype", "toString"])
def test_a_tool_whose_name_is_a_property_of_objects_does_not_exist(chat: Chat, name: str) -> None:
    reply = chat.say(ASKED, [Call(name), delete(chat)], ["Done."], headers=JSON)
    assert answer(chat, ids(reply)).json["reply"] == "Done."
    results = [str(entry[1]) for entry in chat.recalled() if entry[0] == "result"]
    assert any(name in result for result in results)
    assert runs(chat) == 1


def test_the_steps_before_an_approval_count(approvals: Fleet, provider: Provider) -> None:
    chat = Chat(approvals.shared(MAX_STEPS=3), provider)
    names = ("-1", "-2", "-3")
    reply = chat.say(ASKED, *([delete(chat, name)] for name in names), ["Never."], headers=JSON)
    for _ in names:
        reply = answer(chat, ids(reply))
    assert_failed(reply, 502, "reply_incomplete", chat.session)
    assert [runs(chat, name=name) for name in names] == [1, 1, 1]
    assert len(chat.calls(ASKED)) == 3


def test_the_last_step_may_follow_an_approval(approvals: Fleet, provider: Provider) -> None:
    chat = Chat(approvals.shared(MAX_STEPS=3), provider)
    steps = ([read(chat)], [delete(chat)], ["Done."])
    assert answer(chat, ids(chat.say(ASKED, *steps, headers=JSON))).json["reply"] == "Done."
