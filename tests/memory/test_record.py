"""What is recorded of a turn: all of it once, when it was committed, and nothing of any other."""

import json
import threading
import time
from contextlib import closing

import pytest

from tests.conformance.chat import Chat
from tests.conformance.client import JSON, KEY
from tests.conformance.steps import CUT, HANG, Call, Hold, Refuse, Think
from tests.memory.agents import HUNG, Agent, of
from tests.stores.servers import wait_for
from tests.support.files import PDF, png, sent

ADD = [Call("add_memory", {"entries": ["Wrong: likes opera."]})]


@pytest.mark.usual(
    "strands-python-valkey",
    "vercel-python-alone",
    "strands-typescript-alone",
    "vercel-typescript-valkey",
)
def test_a_turn_that_fails_is_never_on_the_wire(
    agent: Agent, who: str, gate: threading.Event
) -> None:
    chat, impatient = agent.chat(who), agent.fresh(TURN_TIMEOUT_SECONDS=2)
    late = Chat(impatient, agent.provider, actor=who)
    running_late = late.start("Wrong: too long.", ADD, [HANG], headers=JSON)
    assert chat.say("Good one.").turn == 1
    assert chat.say("Wrong: refused.", [Refuse(400)], headers=JSON).status == 502
    assert chat.say("Wrong: cut.", ADD, ["Well, ", CUT], headers=JSON).status == 502
    left = chat.start("Wrong: left.", ADD, ["Well, ", HANG])
    assert left.event() == ("message", "Well, ")
    left.leave()
    chat.gone("Wrong: left.")
    if agent.store:
        running = chat.start("Wrong: conflict.", ADD, [Hold(gate), "Late."], headers=JSON)
        chat.call("Wrong: conflict.", 2)
        other = agent.store.snapshot(chat.session)
        other["app_data"]["reply"] = "Elsewhere."  # records alone would be no conflict
        agent.store.write(chat.session, json.dumps(other).encode())
        gate.set()
        assert running.reply().status == 409
    assert chat.say("Good two.").turn == 2
    assert running_late.reply().status == 504
    impatient.signal()
    assert impatient.exit_code(within=HUNG) == 0, "and all that it had to record is recorded"
    agent.idle()
    sent = json.dumps([call.given for call in agent.service.calls.of("CreateEvent")], default=str)
    assert "Wrong" not in sent
    assert "Well, " not in sent
    for memory in (agent.notes, agent.team):
        said = [(role, text.replace(chat.tag, "")) for role, text in agent.said(memory, who)]
        assert said == [
            ("USER", "Good one."),
            ("ASSISTANT", "You said: Good one."),
            ("USER", "Good two."),
            ("ASSISTANT", "You said: Good two."),
        ]


def test_texts_of_a_tool_are_in_the_event_of_the_turn(agent: Agent, who: str) -> None:
    chat = agent.chat(who)
    add = [Call("add_memory", {"entries": ["She likes opera."]})]
    assert chat.say("Remember it.", add, ["Noted."]).turn == 1
    agent.idle()
    for memory in (agent.notes, agent.team):
        assert len(agent.events(memory, who)) == 1
        assert agent.said(memory, who) == [
            ("USER", f"Remember it.{chat.tag}"),
            ("ASSISTANT", "Noted."),
            ("USER", "She likes opera."),
        ]
    other = agent.chat(who)
    other.say("opera")
    assert "She likes opera." in agent.shown(other, "opera")


def test_reasoning_is_not_recorded(agent: Agent, who: str) -> None:
    agent.chat(who).say("Think.", [Think("I ponder."), "Opera."])
    agent.idle()
    events = str(agent.events(agent.notes, who))
    assert "Opera" in events
    assert "ponder" not in events


def test_files_are_not_recorded(agent: Agent, who: str) -> None:
    chat = agent.chat(who)
    files = [sent("photo.png", "image/png", png()), sent("opera.pdf", "application/pdf", PDF)]
    assert chat.post({"prompt": f"Look.{chat.tag}", "files": files}).turn == 1
    agent.idle()
    said = [("USER", f"Look.{chat.tag}"), ("ASSISTANT", "You said: Look.")]
    assert agent.said(agent.notes, who) == said
    events = str(agent.events(agent.notes, who))
    for start in ("iVBOR", "JVBERi0", "PNG", "%PDF"):
        assert start not in events


def test_a_turn_that_is_replayed_is_not_recorded_again(agent: Agent, who: str) -> None:
    chat = agent.chat(who)
    replies = [chat.say("Once.", headers={**JSON, KEY: f"key-{who}"}) for _ in range(2)]
    assert [reply.turn for reply in replies] == [1, 1]
    agent.idle()
    assert [len(agent.events(memory, who)) for memory in (agent.notes, agent.team)] == [1, 1]


@pytest.mark.stores("valkey", "s3")
@pytest.mark.usual(
    "strands-python-valkey",
    "vercel-typescript-valkey",
    "vercel-python-s3",
    "strands-typescript-s3",
)
def test_a_turn_whose_save_is_confirmed_by_a_retry_is_recorded_once(agent: Agent, who: str) -> None:
    """The client of S3 tries again by itself, and its last error is that it cannot connect."""
    assert agent.store
    with closing(agent.store.proxy()) as proxy:
        server = agent.fresh(**agent.store.environment(proxy.address))
        chat = Chat(server, agent.provider, actor=who)
        proxy.at_save = "hold reply"
        first = chat.start("Once.", headers={**JSON, KEY: f"key-{who}"})
        proxy.wait_held()
        proxy.refuse()  # neither the reply of the save nor that of a look-up arrives
        assert first.reply().status == 503
        assert agent.store.turns(chat.session) == 1
        proxy.reset()
        for _ in range(2):
            assert chat.say("Once.", headers={**JSON, KEY: f"key-{who}"}).turn == 1
        assert chat.say("Twice.").turn == 2
        server.signal()
        assert server.exit_code(within=HUNG) == 0
    agent.idle()
    assert len(chat.calls("Once.")) == 1
    for memory in (agent.notes, agent.team):
        said = [text.partition(" canary")[0] for _, text in agent.said(memory, who)]
        assert said == ["Once.", "You said: Once.", "Twice.", "You said: Twice."]


def test_turns_that_wait_are_joined_and_none_is_split(agent: Agent, who: str) -> None:
    held = [agent.service.faults.hold("CreateEvent", where=of(agent.notes))]
    held.append(agent.service.faults.hold("CreateEvent", where=of(agent.team)))
    chat, other = agent.chat(who), agent.chat(who)
    chat.say("One.")
    for fault in held:
        fault.wait_reached()
    for text in ("Two.", "Three.", "Four."):
        chat.say(text)
    other.say("Aside.")
    for fault in held:
        fault.release()
    agent.idle()
    notes = said(agent, agent.notes, who, chat.session)
    assert [len(one) for one in notes] == [2, 4, 2], "batch_size is 4: two turns"
    assert [one[0] for one in notes] == ["One.", "Two.", "Four."]
    assert notes[1] == ["Two.", "You said: Two.", "Three.", "You said: Three."]
    team = said(agent, agent.team, who, chat.session)
    assert [one[0] for one in team] == ["One.", "Two.", "Three.", "Four."]
    for memory in (agent.notes, agent.team):
        assert said(agent, memory, who, other.session) == [["Aside.", "You said: Aside."]]
    tokens = {call.given["clientToken"] for call in agent.events(agent.notes, who)}
    assert len(tokens) == 4


def said(agent: Agent, memory: str, who: str, session: str) -> list[list[str]]:
    """The texts of each event of a session."""
    events = [call.given for call in agent.events(memory, who)]
    return [texts(given) for given in events if given["sessionId"] == session]


def texts(given: dict[str, object]) -> list[str]:
    """The texts of an event, without canaries."""
    items: list[dict[str, dict[str, dict[str, str]]]] = given["payload"]  # type: ignore[assignment]
    return [item["conversational"]["content"]["text"].partition(" canary")[0] for item in items]


def test_long_texts_are_split_below_the_limit_of_the_service(agent: Agent, who: str) -> None:
    chat = agent.chat(who)
    prompt = 99_999 * "x" + "\U0001f600" + 200 * "y"
    assert chat.say(prompt).turn == 1
    agent.idle()
    for memory in (agent.notes, agent.team):
        (event,) = agent.events(memory, who)
        assert event.status == 201
        said = agent.said(memory, who)
        user = [text for role, text in said if role == "USER"]
        assert [len(text) for text in user] == [99_999, 201 + len(chat.tag)]
        assert "".join(user) == prompt + chat.tag
        reply = "".join(text for role, text in said if role == "ASSISTANT")
        assert reply == f"You said: {prompt}"


@pytest.mark.usual("vercel-python-valkey", "strands-typescript-alone")
@pytest.mark.parametrize("kinds", [("lose_reply", "throttle")])
def test_it_is_sent_again_with_the_same_token(
    agent: Agent, who: str, kinds: tuple[str, ...]
) -> None:
    assert_sent_again(agent, who, kinds)


@pytest.mark.usual("vercel-python-valkey", "strands-typescript-alone")
@pytest.mark.parametrize("kinds", [("fail", "cut"), ("error",)])
def test_failed_records_are_sent_again(agent: Agent, who: str, kinds: tuple[str, ...]) -> None:
    assert_sent_again(agent, who, kinds)


def assert_sent_again(agent: Agent, who: str, kinds: tuple[str, ...]) -> None:
    before = agent.server.log.count("not recorded")
    where = of(agent.notes, actorId=who)
    for kind in kinds:
        more = {"code": "ServiceException"} if kind == "error" else {}
        getattr(agent.service.faults, kind)("CreateEvent", where=where, **more)
    chat = agent.chat(who)
    assert chat.say("Hello.").turn == 1
    agent.idle()
    events = agent.events(agent.notes, who)
    assert len(events) == len(kinds) + 1
    assert len({call.given["clientToken"] for call in events}) == 1
    assert events[-1].status == 201
    assert len(agent.said(agent.notes, who)) == 2, "it is one event"
    assert len(agent.events(agent.team, who)) == 1
    assert agent.server.log.count("not recorded") == before


@pytest.mark.usual("strands-python-valkey", "vercel-typescript-valkey")
def test_refused_records_are_not_sent_again(agent: Agent, who: str) -> None:
    before = agent.server.log.count("turns not recorded: 1")
    where = of(agent.notes, actorId=who)
    agent.service.faults.error("CreateEvent", "InvalidInputException", where=where)
    chat = agent.chat(who)
    assert [chat.say(text).turn for text in ("One.", "Two.")] == [1, 2]
    agent.idle()
    assert [call.status for call in agent.events(agent.notes, who)] == [400, 201]
    assert len(agent.said(agent.notes, who)) == 2, "the next turn is recorded"
    assert agent.server.log.count("turns not recorded: 1") == before + 1


@pytest.mark.full
@pytest.mark.usual("strands-python-alone", "vercel-typescript-valkey")
def test_the_backlog_is_bounded(agent: Agent, who: str) -> None:
    before = agent.server.log.count("the queue is full")
    where = of(agent.notes, actorId=who)
    held = agent.service.faults.hang("CreateEvent", times=None, where=where)
    agent.learn_nothing()
    chat, long = agent.chat(who), 2_000_000 * "x"
    assert chat.say("First.").turn == 1
    held.wait_reached()
    for _ in range(9):  # 18 MB of texts: more than may wait
        assert agent.chat(who).say(long, ["Noted."]).turn == 1
    wait_for("a line in the log", lambda: agent.server.log.count("the queue is full") > before)
    agent.service.faults.clear()
    agent.idle()
    said = [text for _, text in agent.said(agent.notes, who)]
    assert f"First.{chat.tag}" in said, "it was on its way"


def test_it_is_busy_until_all_is_recorded(agent: Agent, who: str) -> None:
    held = agent.service.faults.hold("CreateEvent", where=of(agent.notes))
    chat = agent.chat(who)
    assert chat.say("Hello.").turn == 1
    held.wait_reached()
    assert agent.ping() == "HealthyBusy"
    wait_for("the other memory", lambda: agent.said(agent.team, who))
    assert chat.say("Again.").turn == 2, "no turn waits for it"
    assert agent.ping() == "HealthyBusy"
    busy = agent.server.get("/ping").json["time_of_last_update"]
    wait_for("a later second", lambda: int(time.time()) > busy)
    held.release()
    agent.idle()
    assert agent.server.get("/ping").json["time_of_last_update"] > busy
    assert len(agent.said(agent.notes, who)) == 4
