"""Long-term memory outside turns, and what the tools of a model may choose."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.chat import Chat
from tests.conformance.server import Server
from tests.conformance.steps import Call
from tests.memory.agents import PROJECT, Agent, of, of_owner
from tests.stores.servers import wait_for

PYTHON = '''\
"""Of an owner."""

from collections.abc import Awaitable, Callable

from starlette.responses import JSONResponse

from .harness.memory import NotAdded, of_actor

Handler = Callable[..., Awaitable[JSONResponse]]


async def remember(request, runtime):
    given = await request.json()
    try:
        memory = of_actor(runtime.capabilities, given.pop("actor"))
        if "add" in given:
            await memory.add(given.pop("add"), **given)
            return JSONResponse({})
        if "most" in given:
            given["max_search_results"] = given.pop("most")
        found = await memory.search(given.pop("search"), **given)
        texts = [[hit.collection, hit.text] for hit in found]
        return JSONResponse({"found": texts, "failures": found.failures})
    except NotAdded as error:
        return JSONResponse({"message": str(error), "failures": error.failures})
    except ValueError as error:
        return JSONResponse({"refused": str(error)})


ROUTES = {"POST /remember": remember}
'''
TYPESCRIPT = """\
// Of an owner.

import type { IncomingMessage, ServerResponse } from 'node:http'
import { json } from 'node:stream/consumers'

import { NotAdded, ofActor } from './harness/memory/index.ts'
import type { Runtime } from './harness/index.ts'

export type Handler = (
  request: IncomingMessage,
  response: ServerResponse,
  runtime: Runtime,
) => void | Promise<void>

async function answer(given: any, { capabilities }: Runtime) {
  const { actor, add, search, most: maxSearchResults, ...options } = given
  try {
    const memory = ofActor(capabilities, actor)
    if (add) {
      await memory.add(add, options)
      return {}
    }
    const found = await memory.search(search, { ...options, maxSearchResults })
    return {
      found: found.map(({ collection, text }) => [collection, text]),
      failures: found.failures,
    }
  } catch (error) {
    if (error instanceof NotAdded) return { message: error.message, failures: error.failures }
    if (error instanceof RangeError) return { refused: error.message }
    throw error
  }
}

export const ROUTES: Record<string, Handler> = {
  'POST /remember': async (request, response, runtime) => {
    response.end(JSON.stringify(await answer(await json(request), runtime)))
  },
}
"""
SEARCH, ADD = "RetrieveMemoryRecords", "CreateEvent"

pytestmark = pytest.mark.usual("vercel-python-alone", "strands-typescript-alone")


@pytest.fixture
def server(resting: Agent, tmp_path: Path) -> Iterator[Server]:
    server = of_owner(resting, tmp_path, {"routes.py": PYTHON, "routes.ts": TYPESCRIPT})
    yield server
    server.stop()


@pytest.mark.full
def test_a_route_searches_adds_and_sees_failures(resting: Agent, server: Server, who: str) -> None:
    notes, team, service = resting.notes, resting.team, resting.service

    def ask(**given: object) -> dict[str, Any]:
        answer = server.send({"actor": who, **given}, path="/remember").reply()
        assert answer.status == 200
        return dict(answer.json)

    # What is added has been sent when the route answers, and is found.
    assert ask(add="I like green tea.") == {}
    for memory in (notes, team):
        assert resting.said(memory, who) == [("USER", "I like green tea.")]
    wait_for("the records", lambda: len(ask(search="green tea")["found"]) == 1)
    service.remember(team, f"/projects/{PROJECT}/facts", "black tea")
    assert {store for store, _ in ask(search="tea")["found"]} == {"notes", "team"}
    assert ask(search="tea", stores=["team"], most=1)["found"] == [["team", "black tea"]]

    # It is this actor's: another one finds nothing of it.
    assert ask(search="green tea", stores=["notes"], actor=f"{who}-2")["found"] == []
    for actor in (f"{who}/x", "", "a b", "é"):
        assert ask(search="tea", actor=actor)["refused"].startswith("The actor id is invalid")
    assert "Store x does not exist" in ask(search="tea", stores=["x"])["refused"]
    assert "Store x does not exist" in ask(add="tea", stores=["x"])["refused"]
    assert ask(add=" ")["refused"] == "The text is blank: add a text with content."
    assert ask(add="tea", metadata={"_id": "1"})["refused"].startswith("Metadata: key _id")

    # What fails is a value: the other stores have answered, or have been told.
    service.faults.fail(SEARCH, times=None, where=of(team))
    service.faults.fail(ADD, times=None, where=of(team))
    found = ask(search="tea")
    assert {store for store, _ in found["found"]} == {"notes"}
    assert [*found["failures"]] == ["team"]
    assert found["failures"]["team"].startswith("could not search namespace /projects/")
    failed = ask(add="I like milk.")
    assert [*failed["failures"]] == ["team"]
    assert failed["message"] == f"team: {failed['failures']['team']}"
    service.faults.clear()
    assert ask(add="I like milk.", stores=[*failed["failures"]]) == {}
    for memory in (notes, team):
        assert [text for _, text in resting.said(memory, who)][1:] == ["I like milk."]


def test_a_model_chooses_stores_and_how_much_it_wants(
    resting: Agent, server: Server, who: str
) -> None:
    service = resting.service
    service.remember(resting.team, f"/projects/{PROJECT}/facts", "tea of many leaves")
    service.remember(resting.notes, f"/users/{who}/facts", "tea for me")
    is_node = resting.target.name.endswith("typescript")
    most = "maxSearchResults" if is_node else "max_search_results"

    def use(tool: str, **given: object) -> str:
        chat, text = Chat(server, resting.provider, actor=who), f"{tool}: {json.dumps(given)}"
        assert chat.say(text, [Call(tool, given)], ["Done."]).status == 200
        (answer,) = [it[1] for it in chat.history(chat.calls(text)[-1]) if it[0] == "result"]
        return str(answer)

    everything = use("search_memory", query="tea")
    assert "tea for me" in everything
    assert "many leaves" in everything
    one = use("search_memory", query="tea", stores=["notes"], **{most: 1})
    assert "tea for me" in one
    assert "many leaves" not in one
    assert "team" in use("search_memory", query="tea", stores=["x"]), "the answer names the stores"

    use("add_memory", entries=["I like rye bread."], stores=["team"])
    use("add_memory", entries=["I like oat bread."])
    wait_for("the recording", lambda: server.get("/ping").json["status"] == "Healthy")

    def added(memory: str) -> list[str]:
        texts = [text for role, text in resting.said(memory, who) if role == "USER"]
        return [text for text in texts if "bread." in text and "add_memory" not in text]

    assert any("rye" in text for text in added(resting.team))
    assert not any("rye" in text for text in added(resting.notes))
    for memory in (resting.notes, resting.team):
        assert any("oat" in text for text in added(memory))
