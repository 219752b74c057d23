"""Background turns behind wrappers of the project: a check of callers, and a base path."""

import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hooks.rendering import render
from hooks.variants import answers_of
from tests.background.follower import Background
from tests.conformance.client import SESSION, USER
from tests.conformance.provider import Provider
from tests.conformance.server import Fleet, Server
from tests.conformance.steps import Hold
from tests.conformance.targets import Target
from tests.installed import ROOT, environment, link_environment
from tests.ui.chat_page import body, unique

# It names the actor of a request, and counts the requests and their errors.
PYTHON = """
from dataclasses import dataclass

from starlette.responses import JSONResponse

from .base_path import BasePath
from .harness import AgentError, Capability, CoreSettings


@dataclass(frozen=True)
class OwnSettings(CoreSettings):
    pass


class Callers(Capability):
    actor_required = True
    counts = {"posts": 0, "errors": 0}

    def wrap(self, app):
        async def named(scope, receive, send):
            if scope["type"] != "http" or scope["path"] in {"/ping", "/counts"}:
                return await app(scope, receive, send)
            self.counts["posts"] += scope["method"] == "POST"
            name = dict(scope["headers"]).get(b"x-caller")
            if name is None:
                raise AgentError("unauthorized")
            actor = (b"x-amzn-bedrock-agentcore-runtime-user-id", name)
            try:
                await app({**scope, "headers": [*scope["headers"], actor]}, receive, send)
            except Exception:
                self.counts["errors"] += 1
                raise

        return named

    def public_routes(self):
        return {"GET /counts": self.respond}

    async def respond(self, request, runtime):
        return JSONResponse(self.counts)


OWN_CAPABILITIES = [BasePath, Callers]
"""
TYPESCRIPT = """
import { BasePath } from './base_path.ts'
import { AgentError, Capability } from './harness/index.ts'

const ACTOR = 'x-amzn-bedrock-agentcore-runtime-user-id'

class Callers extends Capability {
  counts = { posts: 0, errors: 0 }
  actorRequired() {
    return true
  }
  wrap(app) {
    return (request, response) => {
      if (['/ping', '/counts'].includes(request.url)) return app(request, response)
      if (request.method === 'POST') this.counts.posts++
      const [name] = request.headersDistinct['x-caller'] ?? []
      if (!name) throw new AgentError('unauthorized')
      request.headers[ACTOR] = name
      request.headersDistinct[ACTOR] = [name]
      return app(request, response)
    }
  }
  publicRoutes() {
    return { 'GET /counts': (_, response) => response.end(JSON.stringify(this.counts)) }
  }
}

export const OWN_SETTINGS = {}
export const OWN_CAPABILITIES = [BasePath, Callers]
"""
RECIPE = r"(?s)## A base path\n.*?```\w+\n(.*?)```"  # in docs/routes.md


class Caller(Background):
    """A client whose header the project's own wrapper turns into an actor."""

    @property
    def headers(self) -> dict[str, str]:
        return {SESSION: self.session, **({"X-Caller": self.actor} if self.actor else {})}


def wrapped(target: Target, folder: Path) -> Target:
    """The target with the recipe for a base path, and with Callers."""
    project = folder / "my-agent"
    answers = {"model": "openai-compatible", "extras": ["background", "ai-sdk-ui"]}
    render(ROOT, answers_of(target.name) | answers, project)
    link_environment(project, environment(target.name))
    own = next(project.glob("src/**/own_capabilities.*"))
    own.write_text(TYPESCRIPT if target.is_node else PYTHON)
    recipe = re.search(RECIPE, (project / "docs" / "routes.md").read_text())
    assert recipe
    own.with_stem("base_path").write_text(recipe[1])
    return replace(target, command=lambda _: target.command(project))


@pytest.fixture(scope="module")
def wrapped_fleet(
    target: Target, provider: Provider, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("wrapped")
    fleet = Fleet(wrapped(target, folder), folder, provider.origin)
    yield fleet
    fleet.stop()


@pytest.fixture
def server(wrapped_fleet: Fleet) -> Server:
    return wrapped_fleet.shared()


@pytest.fixture
def ada(server: Server, provider: Provider) -> Caller:
    return Caller(server, provider, actor="ada")


def test_a_wrapper_of_the_project_guards_readers_and_stops(
    ada: Caller, server: Server, provider: Provider, gate: threading.Event
) -> None:
    ada.begin("One.", ["a", Hold(gate), "b"])
    reader = ada.follow()
    assert reader.next()
    for control in ({"follow": True}, {"stop": True}):
        reply = server.post(control, {SESSION: ada.session, USER: "ada"})
        assert (reply.status, reply.error) == (401, "unauthorized")
        reply = Caller(server, provider, ada.session, "bob").post(control)
        assert (reply.status, reply.error) == (403, "session_forbidden")
    gate.set()
    assert reader.rest()[-1].name == "done"
    assert ada.stop() is False


def test_a_wrapper_of_the_project_sees_each_request_once(ada: Caller, server: Server) -> None:
    before = server.get("/counts").json
    ada.begin("One.")
    assert ada.follow().rest()[-1].name == "done"
    ada.begin("Two. " * 2000)
    assert ada.follow().rest()[-1].name == "done"
    assert ada.stop() is False
    assert server.get("/counts").json == {"posts": before["posts"] + 5, "errors": 0}


@pytest.mark.parametrize("path", ["/agent/invocations", "/invocations/", "/agent/invocations/"])
def test_any_path_of_the_agent_runs_background_turns(
    ada: Caller, server: Server, gate: threading.Event, path: str
) -> None:
    def post(fields: dict[str, Any]) -> Any:
        return server.send(fields, ada.headers, path=path)

    ada.script("One.", ["a", Hold(gate), "b"])
    begun = post({"prompt": f"One.{ada.tag}", "background": True}).reply()
    assert begun.status == 202, begun
    assert post({"stop": True}).reply().json["stopped"] is True
    assert b'"type":"turn_stopped"' in post({"follow": True}).reply().body
    gate.set()


@pytest.mark.parametrize("base", ["", "/agent"])
def test_a_turn_of_use_chat_continues(
    ada: Caller, server: Server, provider: Provider, gate: threading.Event, base: str
) -> None:
    text = unique("Hello")
    provider.script(text, ["Slow, ", Hold(gate), "but sure."])
    page = server.send(body(ada.session, text), ada.headers, path=f"{base}/api/chat")
    assert page.head().status == 200
    assert page.head().headers["X-Turn-Id"]
    provider.wait("the call", lambda: len(provider.calls_for(text)) > 0)
    page.leave()
    path = f"{base}/api/chat/{ada.session}/stream"
    reader = server.send(None, ada.headers, method="GET", path=path)
    assert reader.head().status == 200
    gate.set()
    assert b'"type":"finish"' in reader.reply().body
