"""The seam of Strands renders: stores that an owner adds are searched, and told what is kept."""

import json
import os
import re
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.chat import Chat, echoed
from tests.conformance.client import JSON
from tests.conformance.server import Server
from tests.conformance.steps import CUT, Call, Hold
from tests.memory.agents import PROJECT, RECALL, Agent, of_owner, ping, unique
from tests.memory.test_outside import PYTHON as PYTHON_ROUTES
from tests.memory.test_outside import TYPESCRIPT as TYPESCRIPT_ROUTES
from tests.stores.agents import command
from tests.stores.servers import wait_for

PYTHON = '''\
"""The stores of a bookshop."""

import asyncio
import json
import os
from pathlib import Path

from strands.memory import MemoryEntry, MemoryStore

from .harness.memory import MemoryPolicy, Who

FILE = Path(os.environ["NOTEBOOK"])
DOWN = FILE.with_name("down")
failed = set()


class Store(MemoryStore):
    description, max_search_results, extraction = "Notes", 5, None

    def __init__(self, name, who, writable):
        self.name, self.who, self.writable = name, who, writable

    def note(self, *values):
        with FILE.open("a") as file:
            file.write(json.dumps([self.name, self.who, *values]) + "\\n")

    async def search(self, query, options=None):
        if "hang" in query and self.name == "facts":
            await asyncio.sleep(60)
        if "crash" in query and self.name == "facts":
            raise KeyError(query)
        return [MemoryEntry(content=f"{self.name} of {self.who}")]


class Whole(Store):
    async def add_messages(self, messages, context=None):
        if DOWN.exists():
            raise ConnectionError("down")
        for one in messages:
            self.note(one["role"], one["content"][0].get("text"))


class Facts(Store):
    async def add(self, content, metadata=None):
        if self.who not in failed:
            failed.add(self.who)
            raise ConnectionError("later")
        self.note(content)

    async def erase(self, actor):
        self.note("erased")


class OwnMemory(MemoryPolicy):
    def own_stores(self, who: Who) -> list[MemoryStore]:
        of = who.actor
        return [Whole("whole", of, True), Facts("facts", of, True), Whole("manual", of, False)]
'''
TYPESCRIPT = """\
// The stores of a bookshop.

import { appendFileSync, existsSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'

import type { MemoryStore } from '@strands-agents/sdk'

import { MemoryPolicy, type Who } from './harness/memory/index.ts'

const failed = new Set<string>()
const down = join(dirname(process.env.NOTEBOOK!), 'down')

function store(name: string, who: string, writable: boolean) {
  const note = (...values: string[]) =>
    appendFileSync(process.env.NOTEBOOK!, `${JSON.stringify([name, who, ...values])}\\n`)
  const search = async (query: string) => {
    if (query.includes('hang') && name === 'facts') await sleep(60_000)
    if (query.includes('crash') && name === 'facts') throw new RangeError(query)
    return [{ content: `${name} of ${who}` }]
  }
  return { note, base: { name, writable, description: 'Notes', search } }
}

function whole(name: string, who: string, writable: boolean): MemoryStore {
  const { note, base } = store(name, who, writable)
  const addMessages = async (messages: any[]) => {
    if (existsSync(down)) throw new Error('down')
    for (const one of messages) note(one.role, one.content[0].text)
  }
  return { ...base, addMessages }
}

function facts(name: string, who: string): MemoryStore {
  const { note, base } = store(name, who, true)
  const add = async (content: string) => {
    if (!failed.has(who)) {
      failed.add(who)
      throw new Error('later')
    }
    note(content)
  }
  const erase = async (_actor: string) => note('erased')
  return Object.assign(base, { add, erase })
}

export class OwnMemory extends MemoryPolicy {
  override ownStores({ actor }: Who): MemoryStore[] {
    const of = String(actor)
    return [whole('whole', of, true), facts('facts', of), whole('manual', of, false)]
  }
}
"""
FACTS = [json.dumps([{"content": "Robin likes tea."}, {"content": "Robin has a cat."}])]
TRANSCRIPT = "Extract facts from the following transcript:\n\nuser: {0}\nassistant: {1}"


def forget(agent: Agent, folder: Path, who: str) -> tuple[int, dict[str, Any]]:
    """The exit code and the report of `forget`, with the files of an owner in `folder`."""
    words, code = ("forget", "--actor", who, "--json"), "from my_agent.main import cli; cli()"
    run = [str(agent.home.project / ".venv" / "bin" / "python"), "-c", code, *words]
    if (folder / "package.json").exists():
        run = command(folder, *words)
    own = {"PATH": os.environ["PATH"], "PYTHONPATH": str(folder / "src")}
    own |= {"NOTEBOOK": str(folder / "notebook"), "PROJECT_ID": PROJECT, **agent.variables}
    home = agent.home.folder
    done = subprocess.run(run, cwd=home, env=own, capture_output=True, text=True, check=False)
    return done.returncode, json.loads(done.stdout)


@pytest.mark.full
@pytest.mark.usefixtures("bookshop")
@pytest.mark.usual("strands-python-alone", "strands-typescript-valkey")
@pytest.mark.only("strands-python", "strands-typescript")
def test_forget_erases_from_stores_that_can_and_names_the_others(
    resting: Agent, tmp_path: Path, who: str
) -> None:
    code, report = forget(resting, tmp_path, who)
    assert code == 1
    assert notes(tmp_path, who) == [["facts", "erased"]]
    assert [it["where"] for it in report["places"]][-1] == "store facts"
    (failure,) = report["could_not"]
    assert failure.startswith("store whole: it has no erase(actor)")
    assert "store manual was not searched: it records no turns" in report["notes"]


@pytest.mark.full
@pytest.mark.usual("strands-python-valkey", "strands-typescript-valkey")
@pytest.mark.only("strands-python", "strands-typescript")
def test_a_turn_that_waits_does_not_reach_the_stores_of_a_forgotten_actor(
    resting: Agent, bookshop: Server, tmp_path: Path, who: str, gate: threading.Event
) -> None:
    down = tmp_path / "down"  # the store "whole" is down
    down.touch()
    chat, provider = Chat(bookshop, resting.provider, actor=who), resting.provider
    said, reply = f"I like tea.{chat.tag}", "Noted."
    # TypeScript also tells the messages of the tool, without a text.
    transcripts = [
        TRANSCRIPT.format(said, text) for text in (reply, f"\nuser: \nassistant: {reply}")
    ]
    for transcript in transcripts:
        provider.script(transcript, [Hold(gate), *FACTS])
    add = Call("add_memory", {"entries": ["Tea is good."], "stores": ["facts"]})
    assert chat.say("I like tea.", [add], [reply]).turn == 1
    provider.wait("the extraction", lambda: bool(provider.calls_for(*transcripts)))
    assert forget(resting, tmp_path, who)[0] == 1, "whole cannot erase"
    down.unlink()
    gate.set()
    wait_for("a Healthy", lambda: ping(bookshop) == "Healthy")
    erased, *later = notes(tmp_path, who)
    assert erased == ["facts", "erased"]
    texts = {said, reply, "Robin likes tea.", "Robin has a cat.", "Tea is good."}
    assert {text for *_, text in later if text} == (set() if resting.store else texts)


@pytest.fixture
def bookshop(resting: Agent, tmp_path: Path) -> Iterator[Server]:
    """The agent with the file in it that an owner has made their own."""
    sources = {"own_memory.py": PYTHON, "own_memory.ts": TYPESCRIPT}
    sources |= {"routes.py": PYTHON_ROUTES, "routes.ts": TYPESCRIPT_ROUTES}
    notebook = str(tmp_path / "notebook")
    server = of_owner(resting, tmp_path, sources, RECALL_TIMEOUT_SECONDS=RECALL, NOTEBOOK=notebook)
    yield server
    server.stop()


def notes(folder: Path, who: str) -> list[list[str]]:
    """What the stores of somebody were told."""
    path = folder / "notebook"
    lines = path.read_text().splitlines() if path.exists() else []
    return [[name, *values] for name, of, *values in map(json.loads, lines) if of == who]


@pytest.mark.full
@pytest.mark.usual("strands-python-alone", "strands-typescript-valkey")
@pytest.mark.only("strands-python", "strands-typescript")
def test_stores_of_an_owner_are_searched_and_get_committed_turns(
    resting: Agent, bookshop: Server, tmp_path: Path
) -> None:
    agent, provider = resting, resting.provider
    robin, olive = (Chat(bookshop, provider, actor=unique(name)) for name in ("robin", "olive"))
    assert robin.say("Broken.", ["half", CUT], headers=JSON).status == 502
    said, reply = f"I like tea.{robin.tag}", "You said: I like tea."
    provider.script(TRANSCRIPT.format(said, reply), FACTS)
    assert robin.say("I like tea.").text == reply
    wait_for("a Healthy", lambda: ping(bookshop) == "Healthy")

    everything = [f"{name} of {robin.actor}" for name in ("whole", "facts", "manual")]
    assert sorted(agent.shown(robin, "I like tea.")) == sorted(everything)
    told = notes(tmp_path, str(robin.actor))
    # Nothing of the turn that failed, and each fact once, though the store failed at first.
    assert [one for one in told if one[0] != "facts"] == [
        ["whole", "user", said],
        ["whole", "assistant", reply],
    ]
    assert [one for one in told if one[0] == "facts"] == [
        ["facts", "Robin likes tea."],
        ["facts", "Robin has a cat."],
    ]
    assert robin.recalled() == echoed("I like tea.")
    assert olive.say("Hello.").status == 200
    assert all(str(olive.actor) in entry for entry in agent.shown(olive, "Hello."))

    # One that hangs costs the time that a recall may take, and the others are shown.
    assert olive.say("Does it hang?").text == "You said: Does it hang?"
    found = agent.shown(olive, "Does it hang?")
    assert {f"{name} of {olive.actor}" for name in ("whole", "manual")} <= set(found)
    assert f"facts of {olive.actor}" not in found
    assert f"could not search store facts: no answer within {RECALL} s" in bookshop.log

    assert olive.say("Does it crash?").text == "You said: Does it crash?"
    place = r"(KeyError at src/my_agent/own_memory.py|RangeError at src/own_memory.ts):\d+"
    assert re.search(f"could not search store facts: {place}", bookshop.log)


@pytest.mark.full
@pytest.mark.usual("strands-python-alone", "strands-typescript-alone")
@pytest.mark.only("strands-python", "strands-typescript")
def test_texts_that_a_model_adds_are_stored_with_the_commit(
    resting: Agent, bookshop: Server, tmp_path: Path, who: str
) -> None:
    chat = Chat(bookshop, resting.provider, actor=who)

    def add(text: str, *last: Any, **given: Any) -> None:
        call = Call("add_memory", {"entries": [f"{text} is good."], **given})
        prompt = f"{text}?"
        resting.provider.script(TRANSCRIPT.format(f"{prompt}{chat.tag}", "Noted."), ["[]"])
        chat.say(prompt, [call], [*last] or ["Noted."], headers=JSON)
        wait_for("a Healthy", lambda: ping(bookshop) == "Healthy")

    def added() -> list[str]:
        return [text for name, text, *_ in notes(tmp_path, who) if name == "facts"]

    add("Tea", "half", CUT)
    assert added() == [], "nothing of a turn that failed"
    add("Milk")
    add("Rye", stores=["facts"])
    add("Oat", stores=["notes"])
    assert added() == ["Milk is good.", "Rye is good."]
    recorded = [text for _, text in resting.said(resting.notes, who)]
    assert "Milk is good." in "".join(recorded)
    assert "Oat is good." in "".join(recorded)
    assert "Rye is good." not in "".join(recorded)


@pytest.mark.only("strands-python", "strands-typescript")
@pytest.mark.full
def test_a_route_searches_the_stores_of_an_owner_and_adds_to_them(
    bookshop: Server, tmp_path: Path, who: str
) -> None:
    def ask(**given: object) -> dict[str, Any]:
        answer = bookshop.send({"actor": who, **given}, path="/remember").reply()
        assert answer.status == 200
        return dict(answer.json)

    found = ask(search="tea", stores=["facts", "manual"])["found"]
    assert sorted(found) == [["facts", f"facts of {who}"], ["manual", f"manual of {who}"]]
    assert [*ask(add="Tea.", stores=["facts"])["failures"]] == ["facts"], "it fails at first"
    assert ask(add="Tea.", stores=["facts"]) == {}
    assert notes(tmp_path, who) == [["facts", "Tea."]]
    for name in ("manual", "whole"):  # it is read-only, and takes only messages
        assert f"Store {name} does not exist" in ask(add="Tea.", stores=[name])["refused"]
