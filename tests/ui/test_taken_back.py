"""The route for useChat: turns that are taken back, and turns that wait for a person."""

# ruff: noqa: F811 (fixtures)

import json
import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.conftest import (  # noqa: F401 (fixtures)
    nothing_that_a_strict_provider_refuses,
    provider,
)
from tests.conformance.provider import Provider
from tests.conformance.server import Fleet, Server
from tests.conformance.steps import CUT, Call
from tests.conformance.targets import Target
from tests.installed import NODE, packages
from tests.ui.chat_page import (
    LOAD,
    PATH,
    REGENERATE,
    Page,
    Step,
    answer,
    body,
    edit,
    regenerate,
    send,
    texts,
    unique,
)
from tests.ui.gated import gated
from tests.ui.test_chat_route import ASSISTANT, EACH, ONE, fleet, page, target  # noqa: F401 (fixtures)

STALE = "session_conflict: The session has changed. Reload it; nothing was saved."


def said(*prompts: str) -> list[str]:
    """What a page shows of prompts that were echoed."""
    return [text for prompt in prompts for text in (prompt, f"You said: {prompt}")]


@pytest.mark.parametrize("sends", ["", "whole", "last"])
@EACH
def test_any_message_can_be_sent_again_or_edited(
    fleet: Fleet, provider: Provider, sends: str
) -> None:
    page, prompts = Page(fleet.shared(), sends=sends), [unique(f"{at}") for at in range(3)]
    page.act(*map(send, prompts))
    provider.script(prompts[0], ["Other."])
    steps = [regenerate(1)] if sends else [LOAD, regenerate(1)]
    told = page.act(*steps)[-1]
    assert texts(told["messages"]) == [prompts[0], "Other."] == texts(page.history())
    assert told["read"]["metadata"]["turn"] == 1
    assert [one["id"] for one in told["messages"]] == [one["id"] for one in page.history()]
    again, edited = unique("again"), unique("edited")
    *_, told = page.act(*([] if sends else [LOAD]), send(again), edit(2, edited), send(again))
    assert texts(told["messages"]) == [prompts[0], "Other.", *said(edited, again)]
    assert texts(page.history()) == texts(told["messages"])
    assert [one["id"] for one in told["messages"]] == [one["id"] for one in page.history()]
    first = unique("first")
    told = page.act(*([] if sends else [LOAD]), edit(0, first))[-1]
    assert texts(told["messages"]) == said(first) == texts(page.history())


@ONE
def test_a_turn_that_fails_takes_the_place_of_none(page: Page, provider: Provider) -> None:
    first, second, bad = unique("first"), unique("second"), unique("bad")
    page.act(send(first), send(second))
    provider.script(first, ["Half", CUT])
    provider.script(bad, ["Half", CUT], ["Half", CUT])
    failed, _, failed_too, again = page.act(LOAD, regenerate(0), edit(0, bad), REGENERATE)[0:4]
    assert texts(failed["messages"]) == said(first, second)
    assert failed_too["status"] == again["status"] == "error"
    assert texts(page.history()) == said(first, second)
    # Its message is unknown to the server, which goes by the turn above it.
    third = unique("third")
    provider.script(third, ["Half", CUT])
    *_, failed, tried = page.act(LOAD, send(third), REGENERATE)
    assert (failed["status"], tried["status"]) == ("error", "ready")
    assert texts(page.history()) == texts(tried["messages"]) == said(first, second, third)


@ONE
def test_a_message_whose_reply_was_lost_is_answered_from_the_session(
    page: Page, provider: Provider
) -> None:
    first, second = unique("first"), unique("second")
    page.act(send(first), send(second, **{"as": "m-2"}))
    (told,) = page.act(send("whatever", **{"as": "m-2"}))
    assert texts([told["read"]]) == [f"You said: {second}"]
    (told,) = page.act(send(second, **{"as": "m-2"}))
    assert len(provider.calls_for(second)) == 1
    assert texts(page.history()) == said(first, second)
    assert page.history()[2]["id"] == "m-2"


@ONE
def test_a_page_that_knows_other_turns_changes_nothing(fleet: Fleet) -> None:
    one, prompts = Page(fleet.shared(), sends="last"), [unique(f"{at}") for at in range(2)]
    other = Page(fleet.shared(), sends="last")
    other.id = one.id
    other.more["name"] = f"{one.id}-other"
    one.act(*map(send, prompts))
    for step in (send("late"), LOAD, send(prompts[0])):
        (told,) = other.act(step)
        if step == send("late"):
            refused = json.loads(told["error"]) if told["error"].startswith("{") else told["error"]
            assert refused == STALE
    assert texts(one.history()) == said(*prompts, prompts[0])
    for step in (edit(0, "late"), regenerate(0)):
        (told,) = one.act(step)
        assert told["error"] == STALE
    assert texts(one.history()) == said(*prompts, prompts[0])
    # What is only replayed is no change.
    last = one.history()[-2]["id"]
    sent = body(one.id, seen=1)
    sent["messages"][0]["id"] = last
    assert b'"finish"' in one.server.send(sent, path=PATH).reply().body


@ONE
def test_a_branch_that_the_session_no_longer_has_is_not_continued(page: Page) -> None:
    """A page that keeps the branches of a conversation can show one that was replaced."""
    first, second, changed = unique("first"), unique("second"), unique("changed")
    whole = Page(page.server, sends="whole")
    *_, old = whole.act(send(first), send(second))
    above = old["messages"][:2]
    edited = body(whole.id, changed, tools={})
    edited["messages"] = [*above, {**edited["messages"][0], "id": "changed"}]
    assert b'"finish"' in whole.server.send(edited, path=PATH).reply().body
    assert texts(whole.history()) == said(first, changed)
    late = body(whole.id, unique("late"), tools={})
    late["messages"] = [*old["messages"], {**late["messages"][0], "id": "late"}]
    assert STALE.encode() in whole.server.send(late, path=PATH).reply().body
    assert texts(whole.history()) == said(first, changed)
    late["messages"] = [*whole.history(), late["messages"][-1]]
    assert b'"finish"' in whole.server.send(late, path=PATH).reply().body
    assert len(whole.history()) == 6


@ONE
def test_a_message_that_the_session_does_not_have_is_not_sent_again(page: Page) -> None:
    first = unique("first")
    page.act(send(first))
    sent = body(page.id, unique("lost"), trigger="regenerate-message")
    sent["messages"][0]["id"] = "lost"
    assert STALE.encode() in page.server.send(sent, path=PATH).reply().body
    assert texts(page.history()) == said(first)
    # A page that knows all turns tries a message again that failed.
    assert b'"finish"' in page.server.send({**sent, "seen": 1}, path=PATH).reply().body
    assert len(page.history()) == 4


@ONE
def test_bad_names_of_turns_are_refused(page: Page) -> None:
    prompt = unique("first")
    page.act(send(prompt))
    bad: list[dict[str, object]] = [{"messageId": 1}, {"messageId": ["m1"]}, {"messageId": {}}]
    bad += [{"seen": one} for one in ("1", 1.5, -1, True, 1e300, [1])]
    for more in bad:
        reply = page.server.send(body(page.id, **more), path=PATH).reply()
        assert (reply.status, reply.error) == (400, "invalid_request"), more
    unknown: list[dict[str, object]] = [{"messageId": "turn-7"}, {"messageId": "turn-2", "seen": 1}]
    for more in unknown:
        reply = page.server.send(body(page.id, **more), path=PATH).reply()
        assert b"invalid_request: No turn" in reply.body, more
    odds: list[object] = [None, [], {"turn": "1"}, {"turn": -1}, {"turn": 1.5}, 7]
    for odd in odds:
        sent = body(f"{page.id}-odd", unique("odd"))
        sent["messages"].insert(0, {"role": "assistant", "metadata": odd, "parts": odd})
        sent["messages"].insert(0, odd)
        assert b'"finish"' in page.server.send(sent, path=PATH).reply().body, odd
    assert len(page.history()) == 2


@ONE
def test_turns_that_the_session_holds_no_longer_are_cut_at_its_first(fleet: Fleet) -> None:
    page = Page(fleet.fresh(HISTORY_MESSAGES=4), sends="whole")
    prompts = [unique(f"{at}") for at in range(4)]
    page.act(*map(send, prompts))
    held = texts(page.history())
    assert held[-2:] == said(prompts[3])
    assert len(held) < 8
    changed = unique("changed")
    (told,) = page.act(edit(2, changed))
    assert texts(told["messages"]) == said(prompts[0], changed)
    assert texts(page.history()) == said(changed)


SEEDS = [1, pytest.param(2, marks=pytest.mark.full)]


@pytest.mark.slow
@ONE
@pytest.mark.parametrize("seed", SEEDS)
def test_two_tabs_show_the_same_session(fleet: Fleet, provider: Provider, seed: int) -> None:
    """One tab sends all that it shows, as assistant-ui does, the other as in docs/use-chat.md."""
    chance, server = random.Random(seed), fleet.shared()
    tabs = [Page(server, sends="whole"), Page(server, sends="last")]
    tabs[1].id = tabs[0].id
    tabs[1].more["name"] = f"{tabs[0].id}-last"
    shown: list[list[Step]] = [[], []]
    refused = 0
    is_stale = [False, False]  # the other tab has replaced a turn
    for _ in range(200):
        at = chance.randrange(2)
        tab, action = tabs[at], chance.choice(["send", "send", "regenerate", "edit", "load"])
        prompt = unique(action)
        prompts = range(0, len(shown[at]), 2)
        step = send(prompt) if action != "load" else LOAD
        if is_stale[at]:
            step = LOAD
        elif action == "regenerate" and prompts:
            step = regenerate(chance.choice(prompts) + chance.randrange(2))
        elif action == "edit" and prompts:
            step = edit(chance.choice(prompts), prompt)
        if chance.random() < 0.2:
            provider.script(prompt, ["Half", CUT])
        (told,) = tab.act(step)
        if told["status"] == "error":
            refused += told["error"] == STALE
            (told,) = tab.act(chance.choice([LOAD, REGENERATE]) if told["error"] != STALE else LOAD)
            step = send(prompt) if step == LOAD else step
        shown[at] = told["messages"]
        held = tab.history()
        assert texts(shown[at]) == texts(held), (step, seed)
        assert [one["id"] for one in shown[at]] == [one["id"] for one in held]
        is_stale[at] = False
        if step["do"] in {"regenerate", "edit"} or (at == 0 and step["do"] == "send"):
            is_stale[1 - at] |= shown[1 - at] != shown[at][: len(shown[1 - at])]
    assert refused > 0


@ONE
@pytest.mark.full
def test_an_edit_and_a_reload_in_assistant_ui(page: Page, tmp_path: Path) -> None:
    modules = packages(json.dumps({"private": True, "dependencies": ASSISTANT}).encode())
    (tmp_path / "node_modules").symlink_to(modules)
    script = shutil.copy(Path(__file__).with_name("assistant.mjs"), tmp_path)
    host, port = page.server.address
    prompts = [unique("first"), unique("second"), unique("third")]
    changed = unique("changed")
    steps = [*prompts, f"edit 2 {changed}", prompts[2], "reload 1"]
    command = [str(NODE), script, f"http://{host}:{port}{PATH}", *steps]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    told = json.loads(done.stdout or "{}")
    assert told.get("replies") == [200] * 6, (told, done.stderr)
    assert [len(one) for one in told["shown"]] == [2, 4, 6, 4, 6, 2]
    page.id = told["sent"][0]["id"]
    assert told["shown"][3] == said(prompts[0], changed)
    assert told["shown"][-1] == said(prompts[0]) == texts(page.history())


class Gated:
    """A server whose tool `delete_order` needs an approval."""

    def __init__(self, server: Server, provider: Provider) -> None:
        self.server, self.provider = server, provider

    def ask(self, *orders: str, then: str = "Done.") -> tuple[Page, str]:
        """A page with a turn that waits, and its prompt."""
        page, prompt = Page(self.server, sends="last"), unique("delete")
        calls = [Call("delete_order", {"order_id": order}) for order in orders]
        self.provider.script(prompt, ["Wait. ", *calls], [then])
        (told,) = page.act(send(prompt))
        assert (told["status"], told["error"]) == ("ready", None)
        waiting = [part for part in told["messages"][1]["parts"] if "toolCallId" in part]
        assert [part["state"] for part in waiting] == ["approval-requested"] * len(orders)
        assert [part["input"] for part in waiting] == [{"order_id": order} for order in orders]
        assert told["parts"][-1]["finishReason"] == "tool-calls"
        return page, prompt

    def ran(self, order: str) -> int:
        return self.server.log.count(f"<<ran {order}>>")


@pytest.fixture(scope="session")
def gated_server(
    target: Target, provider: Provider, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp(f"gated-{target.name}")
    fleet = Fleet(gated(target, folder, "ai-sdk-ui"), folder, provider.origin)
    yield fleet.fresh(WAITING_SECONDS=60)
    fleet.stop()


@pytest.fixture
def waits(gated_server: Server, provider: Provider) -> Gated:
    return Gated(gated_server, provider)


def states(messages: list[Step]) -> list[str]:
    return [part["state"] for part in messages[-1]["parts"] if "toolCallId" in part]


@EACH
def test_a_call_is_approved_and_the_reply_goes_on(waits: Gated) -> None:
    order = unique("o").split()[-1]
    page, prompt = waits.ask(order)
    (told,) = page.act(answer(True))
    assert (told["status"], told["error"]) == ("ready", None)
    assert len(told["messages"]) == 2, "it is one message"
    assert states(told["messages"]) == ["output-available"]
    assert texts(told["messages"]) == [prompt, "Wait. Done."] == texts(page.history())
    assert told["messages"][1]["metadata"]["turn"] == 1
    assert [one["id"] for one in told["messages"]] == [one["id"] for one in page.history()]
    assert states(page.history()) == ["output-available"]
    assert waits.ran(order) == 1
    (told,) = page.act(send(prompt))
    assert texts(page.history()) == texts(told["messages"])


@pytest.mark.full
@EACH
def test_a_turn_can_wait_more_than_once(waits: Gated, provider: Provider) -> None:
    page, prompt = Page(waits.server, sends="last"), unique("twice")
    orders = [unique("o").split()[-1] for _ in range(3)]
    calls = [Call("delete_order", {"order_id": order}) for order in orders]
    provider.script(prompt, ["One. ", calls[0]], ["Two. ", calls[1]], [calls[2]], ["Done."])
    first, second, loaded, third, last = page.act(
        send(prompt), answer(True), LOAD, answer("no"), answer(True)
    )
    assert states(first["messages"]) == ["approval-requested"]
    assert states(second["messages"]) == ["output-available", "approval-requested"]
    assert states(loaded["messages"]) == ["output-available", "approval-requested"]
    assert texts(loaded["messages"]) == [prompt, "One. Two. "]
    assert states(third["messages"])[-2:] == ["output-denied", "approval-requested"]
    assert [one["error"] for one in (first, second, third, last)] == [None] * 4
    assert len(last["messages"]) == 2
    assert texts(last["messages"]) == [prompt, "One. Two. Done."] == texts(page.history())
    assert len(states(page.history())) == 3
    assert [waits.ran(order) for order in orders] == [1, 0, 1]


@EACH
def test_a_call_is_denied_with_a_reason_that_the_model_is_told(
    waits: Gated, provider: Provider
) -> None:
    orders = [unique("o").split()[-1] for _ in range(2)]
    page, prompt = waits.ask(*orders)
    (told,) = page.act(answer("not today", True))
    assert (told["status"], told["error"]) == ("ready", None)
    assert states(told["messages"]) == ["output-denied", "output-available"]
    assert texts(told["messages"]) == [prompt, "Wait. Done."] == texts(page.history())
    assert states(page.history()) == ["output-error", "output-available"]
    assert [waits.ran(order) for order in orders] == [0, 1]
    assert "not today" in str(provider.calls_for(prompt)[-1].history)


@EACH
def test_a_pending_approval_survives_a_reload_and_shows_in_a_second_tab(waits: Gated) -> None:
    order = unique("o").split()[-1]
    page, prompt = waits.ask(order)
    told, _ = page.act(LOAD, LOAD)
    assert texts(told["messages"]) == [prompt, "Wait. "]
    assert states(told["messages"]) == ["approval-requested"]
    assert told["messages"][1]["parts"][1]["input"] == {"order_id": order}
    tab = Page(page.server, sends="last")
    tab.id, tab.more["name"] = page.id, f"{page.id}-tab"
    _, told = tab.act(LOAD, answer(True))
    assert texts(told["messages"]) == [prompt, "Wait. Done."] == texts(page.history())
    (late,) = page.act(answer("no"))
    assert late["error"].startswith("not_waiting: ")
    assert waits.ran(order) == 1
    (late,) = page.act(LOAD)
    assert texts(late["messages"]) == [prompt, "Wait. Done."]


@EACH
def test_a_repeated_lost_message_gets_the_pending_approval(waits: Gated) -> None:
    page, prompt = waits.ask(unique("o").split()[-1])
    sent = body(page.id, prompt)
    sent["messages"][0]["id"] = page.history()[0]["id"]
    reply = page.server.send(sent, path=PATH).reply().body
    assert b"tool-input-available" in reply
    assert b"tool-approval-request" in reply


@EACH
def test_another_prompt_drops_a_pending_approval(waits: Gated) -> None:
    page, _ = waits.ask(unique("o").split()[-1])
    prompt = unique("instead")
    (told,) = page.act(send(prompt))
    assert told["read"]["metadata"]["dropped"] is True
    assert texts(page.history()) == said(prompt)
    assert page.act(LOAD)[0]["status"] == "ready"


@ONE
def test_an_edit_can_wait_and_shows_only_the_remaining_turns(
    waits: Gated, provider: Provider
) -> None:
    page, first, order = Page(waits.server, sends="last"), unique("first"), unique("o").split()[-1]
    page.act(send(first), send(unique("second")), send(unique("third")))
    prompt = unique("delete")
    provider.script(prompt, [Call("delete_order", {"order_id": order})], ["Done."])
    (told,) = page.act(edit(2, prompt))
    assert texts(told["messages"]) == [*said(first), prompt, ""] == texts(page.history())
    (told,) = page.act(answer(True))
    assert texts(told["messages"]) == [*said(first), prompt, "Done."] == texts(page.history())
    # Sent again while it waits, it takes the place of the turn that it would have replaced.
    provider.script(
        prompt,
        [Call("delete_order", {"order_id": order})],
        [Call("delete_order", {"order_id": order})],
        ["Done."],
    )
    page.act(regenerate(2))
    (told,) = page.act(regenerate(2))
    assert states(told["messages"]) == ["approval-requested"]
    (told,) = page.act(answer("no"))
    assert texts(told["messages"]) == [*said(first), prompt, "Done."] == texts(page.history())


@ONE
def test_answers_without_a_room_for_them_are_refused(page: Page) -> None:
    approval = {"id": "c1", "approved": True}
    part = {"type": "dynamic-tool", "toolName": "t", "toolCallId": "c1", "input": {}}
    part |= {"state": "approval-responded", "approval": approval}
    reply = {"id": "r", "role": "assistant", "parts": [part]}
    sent = {"id": page.id, "messages": [reply], "trigger": "submit-message"}
    assert page.server.send(sent, path=PATH).reply().error == "invalid_request"


@ONE
def test_answers_that_are_not_of_the_protocol_are_refused(waits: Gated) -> None:
    page, _ = waits.ask(unique("o").split()[-1])
    shown = page.history()
    odd: list[dict[str, object]] = [{"approved": True}, {"id": 1, "approved": True}]
    odd += [{"id": ["x"], "approved": True}, {"id": "x", "approved": False, "reason": 1}]
    for approval in odd:
        part = {**shown[1]["parts"][1], "state": "approval-responded", "approval": approval}
        sent = {"id": page.id, "messages": [{**shown[1], "parts": [part, None, 1]}]}
        assert page.server.send(sent, path=PATH).reply().error == "invalid_request", approval
    part = {**shown[1]["parts"][1], "state": "approval-responded"}
    part["approval"] = {"id": "unknown", "approved": True}
    sent = {"id": page.id, "messages": [{**shown[1], "parts": [part]}]}
    assert b"not_waiting" in page.server.send(sent, path=PATH).reply().body
    assert page.history() == shown
