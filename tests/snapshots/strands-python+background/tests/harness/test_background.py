"""Background turns: they continue without their client, and clients follow and stop them."""

import asyncio
from typing import Any

import pytest
from client import ACTOR, EVENTS, SESSION, Client, app
from script import Fail, Reply, Wait
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from my_agent.harness import AgentError, Capability
from my_agent.harness.runtime import Runtime

IN_SESSION = {SESSION: "s"}
FORM = {"Content-Type": "multipart/form-data; boundary=edge"}


class Guard(Capability):
    """A capability of a project: it needs a password, and removes the prefix of a path."""

    def wrap(self, app: ASGIApp) -> ASGIApp:
        async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
            if Headers(scope=scope).get("x-password") != "open":
                raise AgentError("unauthorized")
            await app({**scope, "path": scope["path"].removeprefix("/agent")}, receive, send)

        return guarded


def form(**fields: str) -> bytes:
    """Return a form with these fields."""
    head = 'Content-Disposition: form-data; name="'
    parts = [f'--edge\r\n{head}{name}"\r\n\r\n{text}\r\n' for name, text in fields.items()]
    return "".join([*parts, "--edge--\r\n"]).encode()


async def begin(client: Client, **fields: Any) -> str:
    """Start a background turn and return its id."""
    response = await client.say(session="s", background=True, **fields)
    assert response.status == 202, response.text
    assert response.session_id == "s"
    assert response.body["session_id"] == "s"
    return str(response.body["turn_id"])


async def follow(client: Client, last_id: str = "") -> str:
    """Return the events of the newest turn."""
    headers = {"Last-Event-ID": last_id} if last_id else {}
    response = await client.post({"follow": True}, session="s", headers=headers)
    assert response.status == 200, response.text
    return response.text


async def test_a_turn_begins_at_once_and_its_events_have_ids() -> None:
    event = asyncio.Event()
    client = Client([Reply("one, "), Wait(event), Reply("two")])
    turn = await begin(client)
    reader = client.send("POST", "/invocations", IN_SESSION, b'{"follow": true}')
    await reader.receive_text(f'id: {turn}.1\ndata: "one, "\n\n')
    event.set()
    text = (await reader.response()).text
    done = '{"session_id":"s","turn":1,"model":"offline"}'
    assert text.endswith(
        f'id: {turn}.2\ndata: "two"\n\nid: {turn}.3\nevent: done\ndata: {done}\n\n'
    )
    assert await follow(client) == text
    assert (await client.get("/invocations/s/events")).text == text


async def test_a_reader_continues_after_the_last_event_that_it_has() -> None:
    client = Client(Reply("one, ", "two"))
    turn = await begin(client)
    whole = await follow(client)
    rest = await follow(client, f"{turn}.1")
    assert rest == whole[whole.index(f"id: {turn}.2") :]
    assert await follow(client, "another-turn-000.1") == whole
    body = {"follow": True, "last_event_id": f"{turn}.1"}
    assert (await client.post(body, session="s")).text == rest


async def test_a_turn_continues_when_its_client_leaves() -> None:
    waiting = Wait(asyncio.Event())
    client = Client([waiting, Reply("Hello")])
    request = client.start(session="s", background=True)
    await waiting.reached.wait()
    request.leave()
    waiting.event.set()
    await request.response()
    assert "event: done" in await follow(client)


async def test_stop_cancels_the_turn_and_its_readers_see_it() -> None:
    waiting = Wait(asyncio.Event())
    client = Client([Reply("one"), waiting], Reply("two"))
    await begin(client)
    await waiting.reached.wait()
    response = await client.post({"stop": True}, session="s")
    assert response.body == {"session_id": "s", "stopped": True}
    assert '"type":"turn_stopped"' in (await follow(client)).split("\n\n")[-2]
    response = await client.post({"stop": True}, session="s")
    assert response.body == {"session_id": "s", "stopped": False}
    assert (await client.say(session="s")).turn == 1


async def test_a_rejected_turn_has_the_response_of_today() -> None:
    client = Client()
    response = await client.post({"prompt": "", "background": True}, session="s")
    assert (response.status, response.error) == (400, "invalid_request")
    response = await client.post({"prompt": "Hello", "background": 1}, session="s")
    assert (response.status, response.error) == (400, "invalid_request")
    response = await client.post({"follow": True, "prompt": "Hello"}, session="s")
    assert (response.status, response.error) == (400, "invalid_request")


async def test_a_failure_before_the_first_text_is_an_event() -> None:
    client = Client([Fail(ValueError("secret"))])
    await begin(client)
    (event,) = (await follow(client)).strip().split("\n\n")
    assert "event: error" in event
    assert '"type":"model_failed"' in event


async def test_a_repeated_key_gets_the_recorded_reply_and_runs_nothing() -> None:
    client = Client(Reply("once"), Reply("twice"))
    await begin(client, key="k")
    assert '"once"' in await follow(client)
    await begin(client, key="k")
    assert '"once"' in await follow(client)


async def test_another_actor_reads_and_stops_nothing() -> None:
    waiting = Wait(asyncio.Event())
    client = Client([Reply("one"), waiting])
    await begin(client, actor="ada")
    for body in ({"follow": True}, {"stop": True}):
        response = await client.post(body, session="s", headers={ACTOR: "bob"})
        assert (response.status, response.error) == (403, "session_forbidden")
    waiting.event.set()


async def test_a_turn_that_another_actor_was_refused_hides_no_session() -> None:
    waiting = Wait(asyncio.Event())
    client = Client([waiting, Reply("one")])
    running = client.start(session="s", actor="ada")
    await waiting.reached.wait()
    response = await client.say(session="s", actor="bob", background=True)
    assert response.status == 202, "after one second"
    waiting.event.set()
    assert (await running.response()).status == 200
    for actor, status in (("bob", 200), ("ada", 404)):
        response = await client.post({"follow": True}, session="s", headers={ACTOR: actor})
        assert response.status == status


async def test_a_wrapper_of_the_project_sees_all_requests_first() -> None:
    settings = app.settings_class()
    capabilities = [*app.make_capabilities(settings), Guard(settings, [], app.load)]
    runtime = Runtime(settings, app.load(), capabilities)
    client = Client(*[[Wait(asyncio.Event())]] * 2, runtime=runtime)
    password = {"X-Password": "open"}
    for path in ("/agent/invocations", "/invocations/"):
        for body in ({"prompt": "Hello", "background": True}, {"follow": True}, {"stop": True}):
            response = await client.post(body, path=path, session="s")
            assert (response.status, response.error) == (401, "unauthorized")
        body = {"prompt": "Hello", "background": True}
        response = await client.post(body, path=path, session="s", headers=password)
        assert response.status == 202
        response = await client.post({"stop": True}, path=path, session="s", headers=password)
        assert response.body["stopped"] is True


async def test_a_form_has_the_same_fields() -> None:
    client = Client([Reply("one"), Wait(asyncio.Event())])
    body = form(prompt="Hello", background="true")
    response = await client.post(body, session="s", headers=FORM)
    assert response.status == 202, response.text
    for body in (form(prompt="Hello", background="1"), form(prompt="Hello", stop="true")):
        response = await client.post(body, session="s", headers=FORM)
        assert (response.status, response.error) == (400, "invalid_request")
    response = await client.post(form(stop="true"), session="s", headers=FORM)
    assert response.body == {"session_id": "s", "stopped": True}
    response = await client.post(form(follow="true"), session="s", headers=FORM)
    assert '"type":"turn_stopped"' in response.text


async def test_without_a_turn_there_is_nothing_to_follow() -> None:
    client = Client()
    response = await client.post({"follow": True}, session="s")
    assert (response.status, response.error) == (404, "not_found")
    assert (await client.post({"stop": True}, session="s")).body["stopped"] is False


async def test_an_actor_has_a_limited_number_of_turns() -> None:
    event = asyncio.Event()
    client = Client(Wait(event), Reply("1"), Reply("2"), max_background_turns_per_actor=1)
    waiting = client.start(session="a", actor="ada", background=True)
    await asyncio.sleep(0)
    response = await client.say(session="b", actor="ada", background=True)
    assert (response.status, response.error) == (429, "rate_limited")
    event.set()
    assert (await waiting.response()).status == 202


@pytest.mark.parametrize("max_readers", [1])
async def test_a_turn_has_a_limited_number_of_readers(max_readers: int) -> None:
    event = asyncio.Event()
    client = Client([Reply("one"), Wait(event)], max_readers=max_readers)
    await begin(client)
    reader = client.send("POST", "/invocations", {**IN_SESSION, **EVENTS}, b'{"follow": true}')
    await reader.receive_text("one")
    response = await client.post({"follow": True}, session="s")
    assert (response.status, response.error) == (429, "rate_limited")
    event.set()
    await reader.response()


async def test_a_reader_that_needs_dropped_events_is_told_so() -> None:
    client = Client(Reply("x" * 600, "y" * 600), max_event_bytes=1024)
    turn = await begin(client)
    assert "event: done" in await follow(client, f"{turn}.1")
    response = await client.post({"follow": True}, session="s")
    assert (response.status, response.error) == (409, "events_lost")


async def test_events_expire() -> None:
    client = Client(Reply("one"), event_seconds=1)
    await begin(client)
    await follow(client)
    await asyncio.sleep(1.1)
    assert (await client.post({"follow": True}, session="s")).status == 404
