"""`erase-project` erases what a store keeps of an agent, and nothing of its neighbours."""

import re
import subprocess
import threading

import pytest

from tests.conformance.chat import Chat, assert_failed
from tests.conformance.client import JSON
from tests.conformance.provider import Provider
from tests.conformance.steps import Hold
from tests.stores.agents import Agents, Home, assert_clean
from tests.stores.proxy import Proxy
from tests.stores.stores import S3Store, ValkeyStore

LISTING = ("valkey", "s3")
DELETION = re.compile(rb"(?i)unlink\r\n|DELETE /")


def erase(home: Home, name: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
    done = home.run("erase-project", "--yes", name or home.agent_id, **variables)
    assert_clean(done.stdout + done.stderr)
    return done


def fill(home: Home, count: int, snapshot: bytes = b"{}") -> None:
    for number in range(count):
        home.store.write(f"session-{number}", snapshot)


@pytest.mark.full
@pytest.mark.spread
@pytest.mark.stores(*LISTING)
def test_the_sessions_of_an_agent_are_erased_and_those_of_its_neighbour_stay(
    agents: Agents, provider: Provider
) -> None:
    home, neighbour = agents.home(), agents.home()
    chat = Chat(agents.fresh(home).server, provider)
    assert [chat.say(text).turn for text in ("One.", "Two.")] == [1, 2]
    fill(home, 2)
    fill(neighbour, 3)
    # The ids of agents and sessions that only begin or end in the same way.
    near = [type(home.store)(agents.backing, f"{home.agent_id}{end}") for end in ("x", "-x")]
    for store in near:
        store.write("session-0", b"{}")

    for wrong in (neighbour.agent_id, f"{home.agent_id} ", "yes"):
        done = erase(home, wrong)
        assert done.returncode == 2, done
        assert "is not the name of this project" in done.stderr
        assert "Nothing was erased." in done.stderr
        assert done.stdout == ""
    asked = home.run("erase-project")  # nobody answers
    assert asked.returncode == 1, asked
    assert re.search("  sessions in .*: 3\n", asked.stdout)
    assert "Nothing was erased." in asked.stderr
    assert home.store.turns(chat.session) == 2

    done = erase(home)
    assert done.returncode == 0, done
    assert f"Project {home.agent_id} has stored:\n  sessions in " in done.stdout
    assert "These remain: " in done.stdout
    assert "the history of `chat`" in done.stdout
    assert re.search("erased: sessions in .*: 3\n", done.stdout.partition("These remain: ")[2])
    assert done.stdout.endswith(f"Project {home.agent_id} is erased.\n")
    assert home.store.everything() == "{}"
    assert [neighbour.store.read(f"session-{number}") for number in range(3)] == [b"{}"] * 3
    assert [store.read("session-0") for store in near] == [b"{}", b"{}"]

    again = erase(home)
    assert again.returncode == 0, again
    assert "there is nothing to erase" in again.stdout

    (file,) = home.folder.glob("collections/*.collection.md")
    id = file.name.partition(".")[0]
    refused = home.run("erase-project", "--yes", home.agent_id, "--unshared", id)
    assert refused.returncode == 2, refused
    earlier = file.read_text().replace(f'collection_id: "{id}"', 'collection_id: "earlier"')
    (file.parent / "earlier.collection.md").write_text(earlier)
    unused = erase(home)
    assert unused.returncode == 1, unused
    assert "not erased: data of collection earlier in its store: not looked at" in unused.stdout
    assert "Run the command again." not in unused.stderr


@pytest.mark.spread
@pytest.mark.stores("custom-rest", "custom-lambda")
def test_an_endpoint_that_cannot_list_keeps_its_sessions_and_says_so(agents: Agents) -> None:
    home = agents.home()
    done = erase(home)
    assert done.returncode == 1, done
    assert "failed: sessions in " in done.stdout
    assert "has no operation that lists sessions" in done.stdout
    assert "`sessions end SESSION`" in done.stdout
    assert "is erased" not in done.stdout
    assert "Run the command again." not in done.stderr, "it would fail again"


@pytest.mark.spread
@pytest.mark.stores(*LISTING)
def test_a_store_whose_secret_is_unset_is_not_a_store_without_data(agents: Agents) -> None:
    home = agents.home()
    fill(home, 1)
    variables = dict.fromkeys(home.store.environment(home.store.address), "")
    done = erase(home, **variables, MODEL="offline")
    assert done.returncode == 1, done
    assert "  sessions in the session store: cannot be counted: set SECRETS_" in done.stdout
    assert "nothing to erase" not in done.stdout
    assert "Run the command again." not in done.stderr
    assert home.store.everything() != "{}"


@pytest.mark.spread
@pytest.mark.stores("valkey")
def test_keys_beside_sessions_are_erased(agents: Agents) -> None:
    home, neighbour = agents.home(), agents.home()
    assert isinstance(home.store, ValkeyStore)
    client = home.store.client
    names = [f"session:{{some{{}} one}}:{name}:agent:" for name in ("turns", "events:1", "lease:1")]
    kept = [f"session:x{name}:agent:{home.agent_id}" for name in ("{s}:turns", ":s")]
    kept += [f"{name}{neighbour.agent_id}" for name in names]
    kept.append(f"session{names[0]}{home.agent_id}")
    gone = [f"{name}{home.agent_id}" for name in names]
    for key in (*kept, *gone):
        client.set(key, "1")
    done = erase(home)
    assert done.returncode == 0, done
    assert re.search("erased: other keys of sessions in .*: 3\n", done.stdout)
    assert client.exists(*gone) == 0
    assert client.exists(*kept) == len(kept)
    client.delete(*kept)


@pytest.mark.spread
@pytest.mark.stores("s3")
def test_all_versions_in_a_bucket_are_erased(agents: Agents) -> None:
    home, neighbour = agents.home(), agents.home()
    assert isinstance(home.store, S3Store)
    assert isinstance(neighbour.store, S3Store)
    client, bucket = home.store.client, f"versions-{home.agent_id}-erased"
    client.create_bucket(Bucket=bucket)
    change = {"Status": "Enabled"}
    client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration=change)
    others = [f"x/{home.store.key('s')}", neighbour.store.key("s"), "sessions/s/agent/readme.md"]
    own = [home.store.key("s", name) for name in ("snapshot_latest.json", "files/a", "history/b")]
    for key in (*own, *others, *own, *others):
        client.put_object(Bucket=bucket, Key=key, Body=b"{}")
    client.delete_object(Bucket=bucket, Key=own[1])
    client.delete_object(Bucket=bucket, Key=others[1])
    done = erase(home, SECRETS_S3_SESSIONS=bucket)
    assert done.returncode == 0, done
    listed = client.list_object_versions(Bucket=bucket)
    left = [it["Key"] for it in (*listed["Versions"], *listed["DeleteMarkers"])]
    assert sorted(left) == sorted([*others, *others, others[1]])


@pytest.mark.stores(*LISTING)
@pytest.mark.full
def test_a_store_that_goes_down_is_named_and_a_second_run_goes_on(agents: Agents) -> None:
    home = agents.home()
    fill(home, 40)  # several deletions may be in one packet, of which two arrive
    deletions = []

    def cut_second(request: bytes) -> bool:
        if DELETION.search(request):
            deletions.append(request)
            if len(deletions) > 1:
                proxy.mode = "cut"
        return False

    proxy = Proxy(home.store.address, cut_second)
    reached = home.store.environment(proxy.address) | {"STORE_TIMEOUT_SECONDS": "3"}
    try:
        done = erase(home, **reached)
        assert done.returncode == 1, done
        assert "failed: sessions in " in done.stdout
        assert "Run the command again." in done.stderr
        left = home.store.everything()
        assert left != "{}"
        down = erase(home, **reached)
        assert down.returncode == 1, down
        assert "sessions in " in down.stdout
        assert "cannot be counted" in down.stdout
        assert home.store.everything() == left
        again = erase(home)
        assert again.returncode == 0, again
        assert home.store.everything() == "{}"
    finally:
        proxy.close()


@pytest.mark.once
@pytest.mark.stores(*LISTING)
def test_a_turn_that_runs_during_the_erasure_is_not_saved_in_an_erased_session(
    agents: Agents, provider: Provider, gate: threading.Event
) -> None:
    home = agents.home()
    server = agents.fresh(home).server
    chat, new = Chat(server, provider), Chat(server, provider)
    assert chat.say("One.").turn == 1
    running = chat.start("Two.", [Hold(gate), "Two."], headers=JSON)
    starting = new.start("New.", [Hold(gate), "New."], headers=JSON)
    chat.call("Two.")
    new.call("New.")
    done = erase(home)
    assert done.returncode == 0, done
    gate.set()
    assert_failed(running.reply(), 409, "session_conflict", chat.session)
    # The docs say why: nothing tells a new session from one after the erasure.
    assert starting.reply().json["turn"] == 1
    assert home.store.turns(chat.session) == 0
    assert home.store.turns(new.session) == 1
    assert erase(home).returncode == 0
    assert home.store.everything() == "{}"
