"""`kill -9`: whenever it comes, a session holds a whole number of completed turns, or one waits.

Each target and store has its share of 112 kills, 64 of them between the save request and its reply.
A usual run has one kill of each kind, for each target and each store once.
"""

import random
import signal
import threading
import time

import pytest

from tests.conformance.chat import Chat, echoed
from tests.conformance.client import JSON, KEY
from tests.conformance.provider import Provider
from tests.conformance.steps import HANG, Hold
from tests.conformance.waiting import ASKED, answer, ask, delete, ids, runs
from tests.stores.agents import Agents, Replica, on

FULL = (pytest.mark.slow, pytest.mark.full)

# When the kill comes, and whether the turn can (False: must not, True: must) be committed then.
KILLS: list[tuple[str, bool | None]] = [
    ("the model is asked", False),
    ("the request of the save was sent, and lost", False),
    ("the store has saved, and has not answered", True),
    ("at any time", None),
]


@pytest.mark.one_each
@pytest.mark.parametrize(
    "kills", [KILLS, pytest.param([KILLS[2]] * 3, marks=FULL)], ids=["each kind", "many"]
)
def test_kills_leave_whole_turns(
    agents: Agents, provider: Provider, kills: list[tuple[str, bool | None]]
) -> None:
    home, done = agents.home(), ["One."]
    replica = agents.fresh(home)
    chat = Chat(replica.server, provider)
    assert chat.say("One.", headers={KEY: "key-0"}).turn == 1
    for number, (when, must) in enumerate(kills):
        text = f"Turn {number}."
        key = {**JSON, KEY: f"key-{number + 1}"}
        start_and_kill(chat, replica, text, key, when)
        committed = home.store.turns(chat.session)
        assert committed in (len(done), len(done) + 1)
        if must is not None:
            assert committed == len(done) + must, when
        replica = agents.fresh(home)
        chat = on(replica.server, chat)
        calls = len(chat.calls(text))
        # Its client does not know what became of it, and sends it again.
        again = chat.say(text, headers=key)
        assert again.json["turn"] == len(done) + 1, again
        assert len(chat.calls(text)) - calls == (committed == len(done))
        done.append(text)
    assert chat.recalled() == echoed(*done)


def start_and_kill(
    chat: Chat, replica: Replica, text: str, headers: dict[str, str], when: str
) -> None:
    proxy, steps = replica.proxy, []
    if when == "the model is asked":
        steps = [[HANG]]
    elif when.startswith("the request"):
        proxy.at_save = "hold request"
    elif when.startswith("the store"):
        proxy.at_save = "hold reply"
    exchange = chat.start(text, *steps, headers=headers)
    if steps:
        chat.call(text)
    elif proxy.at_save or when.startswith("the "):
        proxy.wait_held()
    else:
        time.sleep(random.uniform(0, 0.06))
    replica.server.signal(signal.SIGKILL)
    assert replica.server.exit_code() == -signal.SIGKILL
    exchange.leave()
    proxy.cut()  # what was not sent on is lost
    replica.home.store.settle()
    chat.provider.script(text + chat.tag)  # from now on it answers


@pytest.mark.one_each
def test_a_kill_in_the_end_of_a_session_ends_it_or_not(agents: Agents, provider: Provider) -> None:
    home = agents.home()
    replica = agents.fresh(home)
    chat = Chat(replica.server, provider)
    chat.say("One.")
    exchange = replica.server.send({"end_session": True}, chat.headers)
    time.sleep(random.uniform(0, 0.02))
    replica.server.signal(signal.SIGKILL)
    replica.server.exit_code()
    exchange.leave()
    home.store.settle()
    turns = home.store.turns(chat.session)
    chat = on(agents.fresh(home).server, chat)
    assert chat.recalled() == echoed("One.")[: 2 * turns]


# When the kill comes, and whether the turn is committed then (None: either way).
WAITS: list[tuple[str, bool | None]] = [
    ("at any time of the prompt", False),
    ("at any time of the approval", None),
    ("the request of the commit was sent, and lost", False),
    ("the store has committed, and has not answered", True),
]


@pytest.mark.full
@pytest.mark.one_each
@pytest.mark.parametrize(
    "kills", [WAITS, pytest.param(WAITS[:2] * 8, marks=FULL)], ids=["each kind", "many"]
)
def test_kills_leave_a_turn_waiting_or_whole(
    waiting_agents: Agents,
    provider: Provider,
    gate: threading.Event,
    kills: list[tuple[str, bool | None]],
) -> None:
    home = waiting_agents.home()
    survivor = waiting_agents.fresh(home)
    for when, must in kills:
        gate.clear()
        doomed = waiting_agents.fresh(home)
        chat, key = Chat(doomed.server, provider), {**JSON, KEY: "key-1"}
        chat.say("One.")
        if when.endswith("prompt"):
            exchange = chat.start(ASKED, [delete(chat)], ["Deleted."], headers=key)
        else:
            waiting = ask(chat, ["Deleted."] if must is None else [Hold(gate), "Deleted."])
            exchange = chat.send({"approve": waiting}, key)
        if when.startswith("at any time"):
            time.sleep(random.uniform(0, 0.08))
        else:
            chat.call(ASKED, 2)
            doomed.proxy.at_save = "hold reply" if must else "hold request"
            gate.set()
            doomed.proxy.wait_held()
        doomed.server.signal(signal.SIGKILL)
        doomed.server.exit_code()
        exchange.leave()
        doomed.proxy.cut()
        home.store.settle()

        kept = home.store.snapshot(chat.session)["app_data"]
        is_waiting, committed = "pending" in kept, kept["turn"] == 2
        assert (kept["turn"], is_waiting) in [(1, False), (1, True), (2, False)]
        assert must in (None, committed), when
        before = runs(chat)
        assert before in ([0] if is_waiting else [1] if committed else [0, 1])
        chat = on(survivor.server, chat)
        chat.script(ASKED, ["Deleted."])
        if is_waiting:
            again = ids(chat.say(ASKED, headers=key)) if when.endswith("prompt") else waiting
            assert answer(chat, again).json["turn"] == 2
            assert runs(chat) == 1
        elif not when.endswith("prompt"):
            reply = answer(chat, waiting, headers={KEY: "key-1"})
            assert (reply.status, reply.json.get("turn")) == (
                (200, 2) if committed else (409, None)
            )
            assert runs(chat) == before
        told = chat.recalled()
        assert told[:2] == echoed("One.")
        assert (told[2:] == []) == (not is_waiting and not committed)
        assert told[2:] == [] or told[-1] == ("assistant", "Deleted.")
