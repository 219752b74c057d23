"""The owner's surface of a turn: spawn, emit, charge, final tools, a value, and hooks."""

import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.chat import Chat
from tests.conformance.server import Fleet, Server
from tests.conformance.steps import HANG, Call, Hold, Refuse, Step
from tests.conformance.targets import TARGETS, Target
from tests.installed import environment, link_environment, rendered, target_of

pytestmark = pytest.mark.about("turns")

OWN = Path(__file__).with_name("surface")
REFUSED = {"strands": "structuredOutputSchema", "vercel": "stopWhen"}


@cache
def surfaced(variant: str, model: str) -> Path:
    """A render with the owner's files of this module."""
    project = Path(tempfile.mkdtemp()) / "my-agent"
    shutil.copytree(rendered(variant, model=model), project)
    link_environment(project, environment(target_of(variant)))
    framework = variant.partition("-")[0]
    shutil.copy(OWN / f"{framework}.ts", project / "src" / "agent.ts")
    for name in ("routes.ts", "misuse.ts"):
        shutil.copy(OWN / name, project / "src" / name)
    own = (OWN / "own_capabilities.ts").read_text().replace("REFUSED", REFUSED[framework])
    (project / "src" / "own_capabilities.ts").write_text(own)
    return project


class OwnTarget(Target):
    def project(self) -> Path:
        return surfaced(self.variant.partition("+")[0], "openai-compatible")


VENDOR_TARGETS = [OwnTarget(**vars(target)) for target in TARGETS if target.is_node]


@pytest.fixture
def server(fleet: Fleet) -> Server:
    return fleet.shared()


def until(condition: Callable[[], bool]) -> None:
    for _ in range(200):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("the condition does not hold after 10 seconds")


def spawn(chat: Chat, text: str, *steps: Step, **more: object) -> dict[str, Any]:
    """Run a turn of the chat's session from a route."""
    answer: dict[str, Any] = spawning(chat, text, *steps, **more).reply().json
    return answer


def spawning(chat: Chat, text: str, *steps: Step, **more: object) -> Any:
    if steps:
        chat.script(text, *steps)
    body = {"sessionId": chat.session, "prompt": text + chat.tag, "actor": chat.actor, **more}
    return chat.server.send(body, path="/spawn")


def seen(chat: Chat) -> list[list[str]]:
    """The hooks of the turns of a session, and the outcomes that they saw."""
    found: list[list[str]] = chat.server.get("/seen").json.get(chat.session, [])
    return found


def events(reply: Any) -> list[Any]:
    return [event for event in reply.events if event[0] in ("data", "source")]


def test_a_spawned_turn_is_one_of_the_session(chat: Chat) -> None:
    chat.say("One.")
    spawned = spawn(chat, "Two.", ["Spawned."])
    result = spawned["result"]
    assert (result["turn"], result["reply"], result["outcome"]) == (2, "Spawned.", "committed")
    assert spawned["chunks"] == ["Spawned."]
    assert chat.say("Three.").turn == 3
    assert f"session {chat.session}: turn=2 outcome=committed" in chat.server.log


def test_a_spawned_turn_is_replayed_by_its_key(chat: Chat) -> None:
    first = spawn(chat, "One.", ["Once."], key="k")["result"]
    again = spawn(chat, "One.", ["Twice."], key="k")["result"]
    assert (first["outcome"], again["outcome"]) == ("committed", "replayed")
    assert (again["turn"], again["reply"]) == (1, "Once.")


def test_a_spawned_turn_that_nobody_awaits_is_committed(chat: Chat) -> None:
    spawn(chat, "One.", ["Done."], isForgotten=True)
    assert chat.say("Two.").turn == 2


def test_a_spawned_turn_that_fails_and_that_nobody_awaits_ends_alone(chat: Chat) -> None:
    spawn(chat, "One.", [Refuse(400)], isForgotten=True)
    assert chat.say("Two.").turn == 1
    assert f"session {chat.session}: turn=1 outcome=model_failed" in chat.server.log


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"sessionId": "/"}, "invalid_session_id"),
        ({"actor": "Zoé"}, "invalid_actor"),
        ({"key": " "}, "invalid_request"),
        ({"prompt": " "}, "invalid_request"),
    ],
)
def test_a_spawned_turn_is_checked(chat: Chat, fields: dict[str, str], error: str) -> None:
    assert spawn(chat, "One.", **fields)["error"] == error


def test_a_spawned_turn_that_is_refused_is_logged(chat: Chat) -> None:
    assert spawn(chat, "One.", prompt=" ")["error"] == "invalid_request"
    assert f"session {chat.session}: outcome=invalid_request" in chat.server.log
    assert chat.server.log.count(f"session {chat.session}:") == 1


def test_an_error_of_a_capability_is_an_error_of_the_contract(chat: Chat) -> None:
    assert spawn(chat, "Refuse.", ["Well."])["error"] == "internal_error"
    assert f"session {chat.session}: outcome=internal_error" in chat.server.log


@pytest.mark.parametrize("steps", [[["Well."]], [[Call("work")], ["Done."]]], ids=["text", "tool"])
def test_a_callback_that_fails_fails_the_turn(chat: Chat, steps: list[Step]) -> None:
    assert spawn(chat, "One.", *steps, isBroken=True)["error"] == "internal_error"
    assert f"session {chat.session}: turn=1 outcome=internal_error" in chat.server.log
    assert "RangeError" in chat.server.log
    assert chat.say("Two.").turn == 1


def test_a_spawned_turn_takes_the_place_of_a_turn(
    fleet: Fleet, chat: Chat, gate: threading.Event
) -> None:
    small = fleet.shared(MAX_TURNS=1)
    one, other = (Chat(small, chat.provider) for _ in range(2))
    running = spawning(one, "One.", [Hold(gate), "Done."])
    one.call("One.")
    assert spawn(other, "Two.")["error"] == "server_busy"
    refused = other.say("Two.")
    assert (refused.status, refused.error) == (503, "server_busy")
    gate.set()
    assert running.reply().json["result"]["turn"] == 1


def test_spawned_turns_of_a_session_wait_in_its_queue(chat: Chat, gate: threading.Event) -> None:
    first = chat.start("One.", [Hold(gate), "Done."])
    chat.call("One.")
    second = spawning(chat, "Two.", ["Then."])
    time.sleep(0.1)
    assert chat.calls("Two.") == []
    gate.set()
    assert first.reply().turn == 1
    assert second.reply().json["result"]["turn"] == 2


def test_a_spawned_turn_can_be_cancelled(chat: Chat) -> None:
    assert spawn(chat, "One.", ["Well, ", HANG], cancelAfter=500)["error"] == "AbortError"
    assert chat.say("Two.").turn == 1
    outcomes = [["before", "running"], ["around", "cancelled"], ["ended", "cancelled"]]
    assert seen(chat)[:3] == outcomes


def test_a_drain_awaits_a_spawned_turn(fleet: Fleet, chat: Chat, gate: threading.Event) -> None:
    server = fleet.fresh()
    own = Chat(server, chat.provider)
    running = spawning(own, "One.", [Hold(gate), "Done."])
    own.call("One.")
    server.signal()
    time.sleep(0.2)
    gate.set()
    assert running.reply().json["result"]["reply"] == "Done."
    assert server.exit_code() == 0


@pytest.mark.parametrize(
    ("steps", "outcome"),
    [([["Yes."]], "committed"), ([[Refuse(400)]], "model_failed"), ([[" "]], "empty_reply")],
)
def test_hooks_see_the_outcome(chat: Chat, steps: list[Step], outcome: str) -> None:
    chat.say("One.", *steps)
    assert seen(chat) == [["before", "running"], ["around", outcome], ["ended", outcome]]


@pytest.mark.parametrize("prompt", ["Fail late.", "Fail at once."])
def test_a_hook_that_fails_at_the_end_changes_nothing(chat: Chat, prompt: str) -> None:
    assert chat.say(prompt, ["Well."]).turn == 1
    assert f"session {chat.session}: turn=1 outcome=committed" in chat.server.log


@pytest.mark.full
def test_a_hook_that_hangs_at_the_end_delays_the_reply_by_five_seconds(chat: Chat) -> None:
    start = time.monotonic()
    assert chat.say("Hang.", ["Well."]).turn == 1
    assert 4.5 < time.monotonic() - start < 15
    assert chat.say("Next.").turn == 2


def test_a_client_that_leaves_during_the_hook_at_the_end_leaves_a_committed_turn(
    chat: Chat,
) -> None:
    exchange = chat.start("Pause.", ["Well."])
    assert exchange.event() == ("message", "Well.")
    until(lambda: ["ended", "committed"] in seen(chat))
    exchange.leave()
    until(lambda: f"session {chat.session}: turn=1" in chat.server.log)
    assert f"session {chat.session}: turn=1 outcome=committed" in chat.server.log
    assert chat.say("Next.").turn == 2


def test_data_and_sources_are_events_in_their_order(chat: Chat) -> None:
    reply = chat.say("Work.", ["Now. ", Call("work")], ["Done."])
    names = [name for name, _ in reply.events]
    assert names == ["message", "data", "source", "message", "done"]
    assert events(reply) == [
        ("data", {"name": "step", "value": {"done": 1}}),
        ("source", {"url": "https://example.com/a", "title": "A"}),
    ]
    assert "step" not in str(chat.recalled())


def test_data_come_before_the_first_text(chat: Chat, gate: threading.Event) -> None:
    exchange = chat.start("Work.", [Call("work")], [Hold(gate), "Done."])
    chat.call("Work.", 2)
    assert exchange.head().status == 200
    gate.set()
    assert [name for name, _ in exchange.reply().events][:2] == ["data", "source"]


def test_a_tool_that_yields_shows_its_progress(chat: Chat) -> None:
    reply = chat.say("Work.", [Call("steps")], ["Done."])
    values = [data["value"] for name, data in events(reply) if data["name"] == "progress"]
    assert values[:2] == [{"step": 1}, {"step": 2}]
    assert ("result", "all steps") in [entry[:2] for entry in chat.recalled()]


def test_progress_that_is_not_json_is_dropped(chat: Chat) -> None:
    reply = chat.say("Work.", [Call("odd")], ["Done."])
    values = [data["value"] for name, data in events(reply) if data["name"] == "progress"]
    assert values[:1] == [{"step": 3}]
    assert ("result", "all steps") in [entry[:2] for entry in chat.recalled()]


# Only Strands has agents that are tools.
@pytest.mark.rows(where=lambda row: row["target"].name.startswith("strands"))
def test_the_events_of_an_agent_that_is_a_tool_are_no_progress(chat: Chat) -> None:
    reply = chat.say("Ask.", [Call("helper", {"input": "Hello."})], ["Done."])
    assert reply.text == "Done."
    assert events(reply) == []
    assert "Hello." in str(chat.recalled())


def test_a_charge_and_data_are_checked_and_data_are_a_copy(chat: Chat) -> None:
    reply = chat.say("Misuse.", [Call("misuse")], ["Done."])
    assert events(reply) == [("data", {"name": "step", "value": {"steps": [1]}})]
    (result,) = [entry[1] for entry in chat.recalled() if entry[0] == "result"]
    assert result.split("\n") == [
        *["Charge a whole number of tokens, at least 0."] * 5,
        *["The value of Data must be JSON."] * 7,
        *["A Data name must have 1 to 64 characters: A-Z, a-z, 0-9, _ or -."] * 3,
    ]


def test_a_result_keeps_its_value(chat: Chat) -> None:
    chunks = spawn(chat, "Report.", [Call("report")], ["Done."])["chunks"]
    (value,) = [chunk["value"] for chunk in chunks if isinstance(chunk, dict) and "value" in chunk]
    assert value == {"total": 3}


def test_charged_tokens_are_added_to_those_of_the_turn(chat: Chat) -> None:
    plain = spawn(chat, "One.", ["Done."])["result"]["usage"]
    charged = spawn(chat, "Work.", [Call("work")], ["Done."])["result"]["usage"]
    assert charged["inputTokens"] == 2 * plain["inputTokens"] + 1000
    assert charged["outputTokens"] >= 10


def test_the_result_of_a_final_tool_is_the_reply(chat: Chat) -> None:
    reply = chat.say("Help.", ["One moment. ", Call("hand_over")])
    assert reply.text == "One moment. A person will call you."
    assert len(chat.calls("Help.")) == 1
    assert chat.recalled()[-1] == ("assistant", "A person will call you.")


def test_a_final_tool_that_fails_ends_no_turn(chat: Chat) -> None:
    reply = chat.say("Help.", [Call("hand_over", {"fails": True})], ["Sorry."])
    assert reply.text == "Sorry."


def test_the_first_call_of_a_final_tool_with_a_text_ends_the_turn(chat: Chat) -> None:
    blank, slow = Call("hand_over", {"text": " "}), Call("hand_over", {"wait": 300})
    reply = chat.say("Help.", [Call("report"), blank, slow, Call("close")])
    assert reply.text == "A person will call you."
    assert chat.recalled()[-1] == ("assistant", "A person will call you.")


def test_a_later_call_of_a_final_tool_does_not_decide(chat: Chat) -> None:
    reply = chat.say("Help.", [Call("close"), Call("hand_over", {"wait": 300})])
    assert reply.text == "The case is closed."


def test_the_result_of_a_final_tool_is_cut(fleet: Fleet, chat: Chat) -> None:
    own = Chat(fleet.shared(MAX_RESULT_CHARS=1000), chat.provider)
    reply = own.say("Help.", [Call("hand_over", {"text": "x", "times": 5000})])
    (result,) = [entry[1] for entry in own.recalled() if entry[0] == "result"]
    assert len(result) <= 1100
    assert reply.text == result


def test_a_final_tool_ends_no_turn_that_ends_in_a_value(chat: Chat, target: Target) -> None:
    steps: list[Step] = [["Let me see. ", Call("close")], order_of(target)]
    spawned = spawn(chat, "Order.", *steps, isOrder=True, key="k")
    reply = '{"item":"tea","count":2}'
    result = spawned["result"]
    assert (result["reply"], result["output"]) == (reply, {"item": "tea", "count": 2})
    assert [chunk for chunk in spawned["chunks"] if isinstance(chunk, str)] == [reply]
    chat.say("Next.")
    again = spawn(chat, "Order.", isOrder=True, key="k")["result"]
    assert (again["outcome"], again["reply"]) == ("replayed", reply)
    assert again["output"] == {"item": "tea", "count": 2}


def order_of(target: Target) -> Step:
    """How a model answers with a value: by a tool of the SDK, or as JSON."""
    if target.name.startswith("strands"):
        return [Call("strands_structured_output", {"item": "tea", "count": 2})]
    return ['{"item":"tea","count":2}']


def test_a_turn_can_end_in_a_value(chat: Chat, target: Target) -> None:
    spawned = spawn(chat, "Order.", order_of(target), isOrder=True, key="k")
    result = spawned["result"]
    assert result["output"] == {"item": "tea", "count": 2}
    assert result["reply"] == '{"item":"tea","count":2}'
    assert spawned["chunks"] == [result["reply"]]
    again = spawn(chat, "Order.", isOrder=True, key="k")["result"]
    assert (again["outcome"], again["output"]) == ("replayed", result["output"])
    assert chat.recalled()[-1] == ("assistant", result["reply"])


def test_a_value_that_does_not_fit_fails_the_turn(chat: Chat, target: Target) -> None:
    if target.name.startswith("strands"):
        # The SDK lets the model try again.
        wrong: Step = [Call("strands_structured_output", {"item": "tea"})]
        result = spawn(chat, "Order.", wrong, order_of(target), isOrder=True)["result"]
        assert result["output"] == {"item": "tea", "count": 2}
    else:
        assert spawn(chat, "Order.", ['{"item":"tea"}'], isOrder=True)["error"] == "model_failed"


def test_an_option_that_no_turn_can_honour_is_refused_in_a_sentence(
    chat: Chat, target: Target
) -> None:
    reply = chat.say("Refused.", ["Yes."])
    assert (reply.status, reply.error) == (500, "internal_error")
    name = REFUSED[target.name.partition("-")[0]]
    assert f"`prepare` cannot set the option {name}" in chat.server.log
