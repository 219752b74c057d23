"""A client of the server, without a network."""

import asyncio
import json
import re
from typing import Any
from unittest.mock import AsyncMock, patch

from conftest import ScriptedModel
from starlette.datastructures import Headers

from app.capabilities import Settings, make_capabilities
from app.runtime import Runtime
from app.server import create_app

PREFIX = "X-Amzn-Bedrock-AgentCore-Runtime-"
SESSION, ACTOR, KEY = PREFIX + "Session-Id", PREFIX + "Custom-Actor-Id", "Idempotency-Key"
POST, JSON = "POST /invocations", {"Host": "127.0.0.1:8080", "Accept": "application/json"}


class Client:
    """A client of a server whose model plays a script."""

    def __init__(self, *script: Any, **settings: Any) -> None:
        given = Settings(**settings)
        with patch("app.capabilities.OWN_CAPABILITIES", []):  # nobody opens them here
            self.runtime = Runtime(given, make_capabilities(given))
        self.runtime.model = self.model = ScriptedModel(script)

    async def send(self, route: str, headers: Any, body: bytes, patience: float = 60) -> Any:
        """The status, session and text of the answer; the client leaves when out of patience."""
        method, path = route.split()
        scope = {"type": "http", "method": method, "path": path, "headers": Headers(headers).raw}
        leave: Any = (patience, {"type": "http.disconnect"})
        inputs = iter([(0, {"type": "http.request", "body": body}), leave, leave])
        app, send = create_app(self.runtime), AsyncMock()
        await app(scope, lambda: asyncio.sleep(*next(inputs)), send)
        start, *parts = [call.args[0] for call in send.await_args_list]
        text = b"".join(part["body"] for part in parts).decode()
        return start["status"], Headers(raw=start["headers"]).get(SESSION), text

    async def say(self, address: str, prompt: str = "hi", patience: float = 60) -> str:
        """What a turn in session@actor#key comes to, or with a ! the end of that session."""
        await asyncio.sleep(1.2 * address.count("~"))
        names = {"": SESSION, "@": ACTOR, "#": KEY}
        values = {names[mark]: value for mark, value in re.findall(r"([@#]?)(\w+)", address)}
        body = json.dumps({"end_session": True} if "!" in address else {"prompt": prompt})
        _, _, text = await self.send(POST, JSON | values, body.encode(), patience)
        answer = {"error": {"type": "end"}} | json.loads(text)
        return str(answer.get("turn", answer["error"]["type"]))
