"""A server around the AI SDK for Python, as short as can be: the floor for what a render adds."""

import json
import os
from collections import defaultdict
from collections.abc import AsyncIterator
from typing import Any

import ai
import uvicorn
from my_agent.agent import SYSTEM_PROMPT, TOOLS
from my_agent.harness.echo_model import OfflineModel
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

HEADER = "X-Amzn-Bedrock-AgentCore-Runtime-Session-Id"
MODEL, WINDOW = OfflineModel(), int(os.environ["HISTORY_MESSAGES"])
sessions: dict[str, list[Any]] = defaultdict(list)


async def ping(_: Request) -> Response:
    return JSONResponse({"status": "Healthy"})


async def invoke(request: Request) -> Response:
    messages = sessions[request.headers[HEADER]]
    del messages[: max(0, len(messages) - WINDOW)]
    messages.append(ai.user_message((await request.json())["prompt"]))

    async def events() -> AsyncIterator[str]:
        asked = [ai.system_message(SYSTEM_PROMPT), *messages]
        async with ai.Agent(tools=TOOLS).run(MODEL, asked) as run:
            async for event in run:
                if isinstance(event, ai.events.TextDelta):
                    yield f"data: {json.dumps(event.chunk)}\n\n"
        messages[:] = run.messages[1:]

    return StreamingResponse(events(), media_type="text/event-stream")


app = Starlette(routes=[Route("/ping", ping), Route("/invocations", invoke, methods=["POST"])])
uvicorn.run(app, host="127.0.0.1", port=int(os.environ["PORT"]), log_level="error")
