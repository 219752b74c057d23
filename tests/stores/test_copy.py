"""`sessions copy`: live sessions move to another store, while turns run, as often as it takes."""

import json
import os
import re
import subprocess
import threading

import pytest

from tests.conformance.chat import Chat, echoed
from tests.conformance.client import JSON
from tests.conformance.provider import Provider
from tests.conformance.steps import Call
from tests.conformance.targets import TARGETS
from tests.stores.agents import CHECKPOINTS, Agents, Home, assert_clean, command, with_limit
from tests.stores.forks import start
from tests.stores.servers import wait_for
from tests.stores.stores import STORES, S3Store, Store, ValkeyStore

KEPT = {"CHECKPOINTS": str(CHECKPOINTS)}


def run(home: Home, *words: str, fails: bool = False) -> str:
    """What `sessions copy` says."""
    done = home.run("sessions", "copy", *words, **KEPT)
    assert (done.returncode != 0) == fails, done
    assert_clean(done.stdout + done.stderr)
    return (done.stderr if fails else done.stdout).strip()


@pytest.mark.full
@pytest.mark.one_each
def test_sessions_move_to_a_store_of_another_kind(agents: Agents, provider: Provider) -> None:
    home = agents.home()
    server = agents.fresh(home, **KEPT).server
    chats = {name: Chat(server, provider) for name in ("busy", "quiet", "short")}
    for name, chat in chats.items():
        for number in range(1 if name == "short" else 5):
            assert chat.say(f"{name} {number}.", headers=JSON).turn == number + 1
    names = [chat.session for chat in chats.values()]
    asked = names if home.store.name.startswith("custom") else []  # which lists no sessions
    if asked:
        assert "no operation that lists sessions" in run(home, "--to", "./kept", fails=True)

    # Turns run all the time.
    stop, said = threading.Event(), ["busy 0.", "busy 1.", "busy 2.", "busy 3.", "busy 4."]

    def talk() -> None:
        while not stop.is_set():
            said.append(f"busy {len(said)}.")
            assert chats["busy"].say(said[-1], headers=JSON).status == 200

    thread = threading.Thread(target=talk)
    thread.start()
    try:
        first = run(home, *asked, "--to", "./kept")
        run(home, *asked, "--to", "./kept")
    finally:
        stop.set()
        thread.join()
    assert first.endswith(" sessions copied, 0 unchanged.")
    run(home, *asked, "--to", "./kept")
    assert run(home, *asked, "--to", "./kept").startswith("0 sessions copied, ")
    modes = {oct(path.stat().st_mode)[-3:] for path in (home.folder / "kept").iterdir()}
    assert modes == {"600"}

    other = STORES[(STORES.index(home.store.name) + 2) % len(STORES)]
    home.bring(other)
    store = home.declare(other)
    assert run(home, "--from", "./kept").endswith(" sessions copied, 0 unchanged.")
    assert run(home, "--from", "./kept").startswith("0 sessions copied, ")
    kept = store.checkpoints(chats["quiet"].session)
    assert len(kept) == CHECKPOINTS

    # Each session goes on where it was; what goes on there is never replaced.
    there = agents.fresh(home, **KEPT).server
    moved_chats = {name: chat.elsewhere(there) for name, chat in chats.items()}
    assert moved_chats["busy"].recalled()[-10:] == echoed(*said)[-10:]
    assert moved_chats["short"].recalled() == echoed("short 0.")
    left = run(home, "--from", "./kept")
    assert "2 sessions continued in the other store, so not overwritten: " in left
    assert store.turns(chats["busy"].session) == len(said) + 1
    restored = home.run("sessions", "restore", chats["quiet"].session, kept[0])
    assert restored.returncode == 0, restored
    assert "3 sessions continued in the other store" in run(home, "--from", "./kept")
    assert moved_chats["quiet"].recalled() == echoed("quiet 0.", "quiet 1.", "quiet 2.")


def beside(home: Home) -> Store:
    """Declare another collection of the same kind, and return its store."""
    text = home.collection.read_text().replace('"sessions"', '"others"', 1)
    old, new = {
        "valkey": ('key_prefix: "session"', 'key_prefix: "others"'),
        "s3": ('prefix: "sessions"', 'prefix: "others"'),
    }[home.store.name]
    assert old in text
    (home.folder / "collections" / "others.collection.md").write_text(text.replace(old, new))
    kind = {"valkey": OtherValkey, "s3": OtherS3}[home.store.name]
    return kind(home.backing, home.agent_id)


class OtherValkey(ValkeyStore):
    def key(self, session: str) -> str:
        return super().key(session).replace("session:", "others:", 1)


class OtherS3(S3Store):
    def key(self, session: str, name: str = "snapshot_latest.json") -> str:
        return super().key(session, name).replace("sessions/", "others/", 1)


@pytest.mark.stores("valkey", "s3")
@pytest.mark.one_each
def test_a_copy_follows_its_session_until_it_is_continued(
    agents: Agents, provider: Provider
) -> None:
    home = agents.home()
    server = agents.fresh(home).server
    others = beside(home)
    one, two, three = (Chat(server, provider) for _ in range(3))
    for chat in (one, two, three):
        assert chat.say("One.", headers=JSON).turn == 1
    assert run(home, "--to", "others") == "3 sessions copied, 0 unchanged."
    assert one.replace(1, "Another one.", headers=JSON).turn == 1
    assert two.say("Two.", headers=JSON).turn == 2
    assert run(home, two.session, "--to", "others") == "1 session copied, 0 unchanged."
    assert run(home, "--to", "others") == "1 session copied, 2 unchanged."
    assert "Another one." in str(others.snapshot(one.session))

    # A session that has ended is kept there, until somebody says otherwise.
    assert three.end().status == 200
    said = run(home, "--to", "others")
    assert said.splitlines()[1] == f"1 session ended; --end also ends their copies: {three.session}"
    assert others.turns(three.session) == 1
    said = run(home, "--to", "others", "--end")
    assert f"1 session ended, now also their copies: {three.session}" in said
    assert others.snapshot(three.session) is None

    # What only the other store has is nothing to this one. It goes on there, though no turn has
    # ended: a call waits for an approval, and all that was known of the session is kept.
    value = json.loads(others.read(two.session) or b"")
    value["app_data"]["pending"] = {"calls": []}
    others.write(two.session, json.dumps(value).encode())
    assert two.say("Three.", headers=JSON).turn == 3
    assert "1 session continued in the other store" in run(home, "--to", "others")
    assert others.turns(two.session) == 2
    assert two.end().status == 200
    assert run(home, "--to", "others", "--end") == "0 sessions copied, 1 unchanged."
    assert others.turns(two.session) == 2

    # What cannot be read is named, and the rest is copied.
    assert two.say("Anew.", headers=JSON).turn == 1
    home.store.write(one.session, b"[]")
    said = run(home, "--to", "others", fails=True)
    assert said == f"Error: session {one.session} was not copied: it is unreadable"
    said = run(home, two.session, "--to", "others")
    assert "1 session continued in the other store, so not overwritten: " in said.splitlines()[1]


@pytest.mark.stores("valkey")
@pytest.mark.full
def test_both_languages_recognize_a_copy(agents: Agents, provider: Provider) -> None:
    home = agents.home()
    chat = Chat(agents.fresh(home).server, provider)
    assert chat.say("Grüße 😀", headers=JSON).turn == 1
    value = home.store.snapshot(chat.session)
    numbers = [0, -0.0, -1, 1.0, 0.1, 1e-7, 1e16, 1e21, 2**53, 5e-324]
    names = ["10", "9", "\ue000", "😀", "a\u2028\x1f\x7f", "__proto__"]
    value["app_data"]["records"] = {"own": {"numbers": numbers, **dict.fromkeys(names)}}
    home.store.write(chat.session, json.dumps(value).encode())
    assert run(home, "--to", "./kept") == "1 session copied, 0 unchanged."
    framework, _, language = home.target.name.partition("-")
    other = "python" if language == "typescript" else "typescript"
    home.target = next(it for it in TARGETS if it.name == f"{framework}-{other}")
    home.bring(home.store.name)
    assert run(home, "--to", "./kept") == "0 sessions copied, 1 unchanged."


@pytest.mark.stores("valkey", "s3")
@pytest.mark.one_each
def test_a_copy_gets_the_checkpoints_of_later_turns_too(agents: Agents, provider: Provider) -> None:
    home = agents.home()
    chat, others = Chat(agents.fresh(home, **KEPT).server, provider), beside(home)
    odd = Call("no_such_tool", {"q": {"toString": "x"}, "n": 1})  # a name that objects have
    assert chat.say("One.", [odd], ["Done."]).turn == 1
    assert run(home, "--to", "others") == "1 session copied, 0 unchanged."
    for number in range(2, CHECKPOINTS + 2):
        assert chat.say(f"{number}.").turn == number
        assert run(home, "--to", "others") == "1 session copied, 0 unchanged."
    kept = home.store.checkpoints(chat.session)
    assert len(kept) == CHECKPOINTS
    wait_for("the checkpoints", lambda: others.checkpoints(chat.session) == kept)
    assert chat.end().status == 200
    assert run(home, "--to", "others", "--end").startswith("0 sessions copied")
    assert others.checkpoints(chat.session) == []


@pytest.mark.stores("valkey", "s3")
@pytest.mark.full
def test_a_copy_never_goes_back_to_an_earlier_turn(agents: Agents, provider: Provider) -> None:
    """Somebody may continue it while it is brought up to date."""
    home = agents.home()
    chat = Chat(agents.fresh(home, **KEPT).server, provider)
    others, seen, stop = beside(home), set[int](), threading.Event()
    for number in range(1, 4):
        assert chat.say(f"Turn {number}.", headers=JSON).turn == number
    run(home, "--to", "others")
    assert len(others.checkpoints(chat.session)) == CHECKPOINTS
    for number in range(4, 7):
        assert chat.say(f"Turn {number}.", headers=JSON).turn == number

    def watch() -> None:
        while not stop.is_set():
            seen.add(others.turns(chat.session))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        run(home, "--to", "others")
    finally:
        stop.set()
        thread.join()
    assert seen <= {3, 6}
    assert others.turns(chat.session) == 6


@pytest.mark.stores("valkey")
@pytest.mark.one_each
def test_a_copy_that_was_killed_is_completed(agents: Agents, provider: Provider) -> None:
    home = agents.home()
    chat = Chat(agents.fresh(home).server, provider)
    assert chat.say("One.", headers=JSON).turn == 1
    data, others = home.store.read(chat.session) or b"", beside(home)
    names = [f"session-{number}" for number in range(60)]
    for name in names:
        home.store.write(name, data)
    words = ["sessions", "copy", "--to", "others"]
    environment = {**home.store.environment(home.store.address), "HOME": str(home.folder)}
    process = start(
        command(home.project, *words),
        cwd=home.folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for("a copy", lambda: others.read(names[10]) is not None)
    process.kill()
    process.communicate()
    run(home, "--to", "others")
    assert run(home, "--to", "others") == "0 sessions copied, 61 unchanged."
    assert {others.turns(name) for name in names} == {1}


@pytest.mark.stores("valkey")
@pytest.mark.one_each
def test_an_unknown_store_is_an_error(agents: Agents) -> None:
    home = agents.home()
    beside(home)
    file = home.folder / "collections" / "others.collection.md"
    good = file.read_text()
    wrong = "Name a collection or a folder with --to or --from."
    for words in ([], ["--to", "others", "--from", "others"], ["--to="]):
        assert wrong in run(home, *words, fails=True)
    assert "A session id " in run(home, "a/b", "--to", "others", fails=True)
    known = {
        "nobody": "collections/nobody.collection.md declares no session store.",
        "sessions": "Collection sessions already stores these sessions. Name another.",
    }
    for name, message in known.items():
        assert run(home, "--to", name, fails=True) == f"Error: {message}"
    none = run(home, "--from", "./none", fails=True)
    assert none in ("Error: There is no folder none.", "Error: There is no folder ./none.")
    file.write_text(good.replace("enabled: true", "enabled: false"))
    assert run(home, "--to", "others", fails=True) == "Error: Collection others is read-only."
    secret = {"valkey": "secrets/valkey/sessions", "s3": "secrets/s3/sessions"}[home.store.name]
    file.write_text(good.replace(secret, "env:NOWHERE"))
    unset = run(home, "--to", "others", fails=True)
    assert unset == "Error: No store is configured: set NOWHERE."
    # A folder that holds something else.
    (home.folder / "kept").mkdir()
    (home.folder / "kept" / "x.json").write_text("[]")
    assert "x.json is not a stored session (" in run(home, "--from", "./kept", fails=True)
    (home.folder / "kept" / "x.json").unlink()
    assert run(home, "--from", "./kept").startswith("0 sessions copied, ")
    (home.folder / "file").write_text("")
    long = f"./{'x' * 300}"  # a folder that cannot be read
    for name in ("./file", long):
        assert "Error: There is no folder " in run(home, "--from", name, fails=True)
        refused = run(home, "--to", name, fails=True)
        assert re.fullmatch(r"Error: the folder \S+ cannot be read \(.*\)", refused), refused
    session = "session-1"
    home.store.write(session, b'{"app_data": {}}')
    full = run(home, session, "--to", "./file/kept", fails=True)
    assert full.startswith(f"Error: session {session} was not copied: file/kept/")


@pytest.mark.full
@pytest.mark.one_each
def test_a_full_disk_leaves_no_part_of_a_session(agents: Agents, provider: Provider) -> None:
    home = agents.home()
    chat = Chat(agents.fresh(home).server, provider)
    assert chat.say("Long. " * 4000).turn == 1
    words = ["sessions", "copy", chat.session, "--to", "./kept"]
    environment = {**home.store.environment(home.store.address), "PATH": os.environ["PATH"]}
    done = subprocess.run(
        with_limit(command(home.project, *words), "8"),
        cwd=home.folder,
        env={**environment, "HOME": str(home.folder)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1, done
    assert "cannot be written" in done.stderr, done
    assert list((home.folder / "kept").iterdir()) == []
