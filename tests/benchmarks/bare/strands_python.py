"""A server around Strands Agents, as short as can be: the floor for what a render adds."""

import json
import os
from collections import defaultdict
from collections.abc import AsyncIterator

import uvicorn
from my_agent.agent import SYSTEM_PROMPT, TOOLS
from my_agent.harness.echo_model import OfflineModel
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from strands import Agent
from strands.agent.conversation_manager import NullConversationManager

HEADER = "X-Amzn-Bedrock-AgentCore-Runtime-Session-Id"
MODEL, WINDOW = OfflineModel(), int(os.environ["HISTORY_MESSAGES"])
agents: dict[str, Agent] = defaultdict(
    lambda: Agent(
        model=MODEL,
        system_prompt=SYSTEM_PROMPT,
        tools=TOOLS,
        callback_handler=None,
        conversation_manager=NullConversationManager(),
    )
)


async def ping(_: Request) -> Response:
    return JSONResponse({"status": "Healthy"})


async def invoke(request: Request) -> Response:
    agent, prompt = agents[request.headers[HEADER]], (await request.json())["prompt"]
    del agent.messages[: max(0, len(agent.messages) - WINDOW)]

    async def events() -> AsyncIterator[str]:
        async for event in agent.stream_async(prompt):
            if "data" in event:
                yield f"data: {json.dumps(event['data'])}\n\n"

    return StreamingResponse(events(), media_type="text/event-stream")


app = Starlette(routes=[Route("/ping", ping), Route("/invocations", invoke, methods=["POST"])])
uvicorn.run(app, host="127.0.0.1", port=int(os.environ["PORT"]), log_level="error")
