"""A test client of the agent's server, without a network."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from click.testing import CliRunner, Result
from script import Answer
from scripted_model import ScriptedModel
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message

from my_agent.harness import AgentApp, Capability, CoreSettings, make_cli
from my_agent.harness.http.server import create_app
from my_agent.harness.project import Project
from my_agent.harness.runtime import Runtime, start_runtime
from my_agent.main import app as own_app

PREFIX = "X-Amzn-Bedrock-AgentCore-Runtime-"
SESSION = PREFIX + "Session-Id"
ACTOR = PREFIX + "Custom-Actor-Id"
KEY = "Idempotency-Key"
HEADERS = {"Host": "127.0.0.1:8080", "Accept": "application/json"}
EVENTS = {"Accept": "text/event-stream"}
PATIENCE_SECONDS = 30


class WithoutOwn:
    """Replaces `own_capabilities`, which may need settings or reject turns."""

    @dataclass(frozen=True)
    class OwnSettings(CoreSettings):
        """No settings."""

    OWN_CAPABILITIES: Sequence[type[Capability]] = ()


app = AgentApp(own_app.load, own=WithoutOwn(), folder=Project.package)
cli = make_cli(app)


class Response:
    """The response to a request."""

    def __init__(self, status: int, headers: Headers, text: str) -> None:
        self.status = status
        self.session_id = headers.get(SESSION, "")
        self.text = text

    @property
    def body(self) -> Any:
        """The JSON of the body."""
        return json.loads(self.text)

    @property
    def reply(self) -> str:
        """The reply of a committed turn."""
        return str(self.body.get("reply", ""))

    @property
    def turn(self) -> int:
        """The number of a committed turn; 0 if it failed."""
        return int(self.body.get("turn", 0))

    @property
    def error(self) -> str:
        """The type of the error, or an empty string."""
        return str(self.body.get("error", {}).get("type", ""))


class Request:
    """A pending request."""

    def __init__(self, app: ASGIApp, scope: dict[str, Any], body: bytes) -> None:
        self._body: bytes | None = body
        self._has_left = asyncio.Event()
        self._has_received = asyncio.Event()
        self._status = 0
        self._headers = Headers()
        self._received = b""
        self._task = asyncio.create_task(self._run(app, scope))

    def leave(self) -> None:
        """Disconnect before the response."""
        self._has_left.set()

    async def response(self) -> Response:
        """Wait for the end of the response."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            await self._task
        return Response(self._status, self._headers, self._received.decode())

    async def receive_text(self, text: str) -> None:
        """Wait until the response contains this text."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while text not in self._received.decode():
                self._has_received.clear()
                await self._has_received.wait()

    async def _run(self, app: ASGIApp, scope: dict[str, Any]) -> None:
        await app(scope, self._receive, self._send)

    async def _receive(self) -> Message:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body}
        await self._has_left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            self._headers = Headers(raw=message["headers"])
        else:
            self._received += message["body"]
        self._has_received.set()


class Client:
    """A client of a server with a scripted model.

    The server lacks your capabilities; use `open_client` to include them.
    """

    def __init__(self, *script: Answer, runtime: Runtime | None = None, **settings: Any) -> None:
        self.model = ScriptedModel(script)
        self.runtime = runtime or make_runtime(**settings)
        self.runtime.model = self.model

    def start(
        self,
        prompt: str = "Hello",
        *,
        session: str = "",
        actor: str = "",
        key: str = "",
        headers: Mapping[str, str] | None = None,
        **fields: object,
    ) -> Request:
        """Send a prompt and return the pending request."""
        values = {SESSION: session, ACTOR: actor, KEY: key}
        given = {name: value for name, value in values.items() if value}
        body = json.dumps({"prompt": prompt, **fields}).encode()
        return self.send("POST", "/invocations", {**given, **(headers or {})}, body)

    async def say(self, prompt: str = "Hello", **options: Any) -> Response:
        """Send a prompt with the options of `start` and return the response."""
        return await self.start(prompt, **options).response()

    async def post(
        self,
        body: object,
        *,
        path: str = "/invocations",
        session: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        """Send JSON or unchanged bytes, and return the response."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        given = {SESSION: session} if session else {}
        return await self.send("POST", path, {**given, **(headers or {})}, content).response()

    async def get(self, path: str, *, headers: Mapping[str, str] | None = None) -> Response:
        """Send a GET request and return the response."""
        return await self.send("GET", path, headers or {}).response()

    async def end(self, session: str, *, actor: str = "") -> Response:
        """End a session."""
        headers = {ACTOR: actor} if actor else {}
        return await self.post({"end_session": True}, session=session, headers=headers)

    def send(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes = b""
    ) -> Request:
        """Send a request and return the pending request."""
        path, _, query = path.partition("?")
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": query.encode(),
            "headers": Headers({**HEADERS, **headers}).raw,
        }
        return Request(create_app(self.runtime), scope, body)


def make_runtime(**values: Any) -> Runtime:
    """Return a runtime without your capabilities."""
    settings = app.settings_class(**values)
    return Runtime(settings, app.load(), app.make_capabilities(settings))


@asynccontextmanager
async def open_client(*script: Answer, **values: Any) -> AsyncIterator[Client]:
    """Yield a client of a server with your capabilities, opened.

    `values` override settings from the environment.
    """
    settings, findings = own_app.read_settings()
    runtime = start_runtime(own_app, replace(settings, **values), findings)
    await runtime.open()
    try:
        yield Client(*script, runtime=runtime)
    finally:
        await runtime.close()


def run(*words: str, **options: Any) -> Result:
    """Run a command of the agent with the options of `CliRunner.invoke`."""
    return CliRunner().invoke(cli, words, **options)
