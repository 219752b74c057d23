"""Amazon Bedrock's Converse API as a provider of the AI SDK, which has none for it."""

import json
import re
from asyncio import wrap_future
from collections.abc import AsyncGenerator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Literal

import ai
from ai import events, messages
from ai.providers import history_utils
from ai.types.usage import Usage
from urllib3 import HTTPResponse

REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_call",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "content_filtered": "content_filter",
    "guardrail_intervened": "guardrail_intervened",
}


class BedrockProvider(ai.Provider[Any]):
    """Texts and tools, over a boto3 client for `bedrock-runtime`; reasoning is left out."""

    provider_class_id: Literal["bedrock"] = "bedrock"
    name: str = "bedrock"
    default_base_url: str = ""

    def __init__(self, client: Any, guardrail: dict[str, Any], *, caches: bool) -> None:
        super().__init__()
        self._guardrail, self._caches = guardrail, caches
        self._set_client(client)
        client.meta.events.register("after-call.bedrock-runtime.ConverseStream", _keep_body)

    async def stream(
        self,
        model: ai.Model,
        messages: list[messages.Message],
        *,
        tools: Sequence[ai.tools.Tool] | None = None,
        **_: Any,
    ) -> AsyncGenerator[events.Event]:
        request = _request(model.id, history_utils.repair(messages), tools or [])
        request |= self._guardrail
        if self._caches and re.search("claude|anthropic", model.id):  # others refuse cache points
            _add_cache_points(request)
        thread = ThreadPoolExecutor(1)  # the client blocks; one thread must read and close
        opening = thread.submit(self.client.converse_stream, **request)
        try:
            response = await wrap_future(opening)
            body: HTTPResponse = response["body"]
            chunks, calls = iter(response["stream"]), dict[int, str]()
            yield events.StreamStart()
            try:
                reason, usage = None, None
                while chunk := await wrap_future(thread.submit(next, chunks, None)):
                    for event in _events(chunk, calls):
                        yield event
                    reason = chunk.get("messageStop", {}).get("stopReason", reason)
                    usage = chunk.get("metadata", {}).get("usage", usage)
                if reason:
                    known = REASONS.get(reason, "other")
                    yield events.StreamEnd(finish_reason=known, usage=_usage(usage or {}))
            finally:
                with suppress(OSError, RuntimeError, ValueError):  # the response has ended already
                    body.shutdown()  # ends a running read
        finally:
            thread.submit(lambda: opening.result()["stream"].close())
            thread.shutdown(wait=False)


def _keep_body(http_response: Any, parsed: dict[str, Any], **_: Any) -> None:
    parsed["body"] = http_response.raw


def _request(id: str, history: list[messages.Message], tools: Sequence[Any]) -> dict[str, Any]:
    request: dict[str, Any] = {"modelId": id, "messages": []}
    for message in history:
        blocks = [block for part in message.parts if (block := _block(part))]
        if message.role == "system":
            request["system"] = blocks
        else:
            role = "assistant" if message.role == "assistant" else "user"
            request["messages"].append({"role": role, "content": blocks})
    if tools:
        specs = [(tool.name, tool.spec.description, tool.spec.params) for tool in tools]
        request["toolConfig"] = {
            "tools": [
                {"toolSpec": {"name": name, "description": what, "inputSchema": {"json": schema}}}
                for name, what, schema in specs
            ]
        }
    return request


def _add_cache_points(request: dict[str, Any]) -> None:
    """Let the provider cache what stands before the end of the system prompt and of the prompt.

    Memories stand behind the prompt and change with each turn.
    """
    point = {"cachePoint": {"type": "default"}}
    request.get("system", []).append(point)
    blocks = request["messages"][-1]["content"]
    blocks.insert(1 if "text" in blocks[0] else len(blocks), point)


def _block(part: Any) -> dict[str, Any] | None:
    if part.kind == "text":
        return {"text": part.text}
    if part.kind == "tool_call":
        arguments = json.loads(part.tool_args or "{}")
        call = {"toolUseId": part.tool_call_id, "name": part.tool_name, "input": arguments}
        return {"toolUse": call}
    if part.kind == "tool_result":
        value = part.get_model_input()
        text = value if isinstance(value, str) else json.dumps(value, default=str)
        result = {"toolUseId": part.tool_call_id, "content": [{"text": text or "(nothing)"}]}
        return {"toolResult": result | {"status": "error" if part.is_error else "success"}}
    return None


def _events(chunk: dict[str, Any], calls: dict[int, str]) -> Iterator[events.Event]:
    """Yield the events of a chunk; `calls` has the ids of tool calls by block, "" for a text."""
    [(kind, value)] = chunk.items()
    index = value.get("contentBlockIndex", 0)
    if kind == "contentBlockStart" and (tool := value["start"].get("toolUse")):
        calls[index] = tool["toolUseId"]
        yield events.ToolStart(tool_call_id=calls[index], tool_name=tool["name"])
    elif kind == "contentBlockDelta" and "toolUse" in value["delta"]:
        text = value["delta"]["toolUse"]["input"]
        yield events.ToolDelta(tool_call_id=calls[index], chunk=text)
    elif kind == "contentBlockDelta" and "text" in value["delta"]:
        if index not in calls:
            calls[index] = ""
            yield events.TextStart(block_id=str(index))
        yield events.TextDelta(block_id=str(index), chunk=value["delta"]["text"])
    elif kind == "contentBlockStop" and calls.get(index):
        done = messages.DUMMY_TOOL_CALL
        yield events.ToolEnd(tool_call_id=calls[index], tool_call=done)


def _usage(known: dict[str, int]) -> Usage:
    read, written = known.get("cacheReadInputTokens", 0), known.get("cacheWriteInputTokens", 0)
    return Usage(
        input_tokens=known.get("inputTokens", 0) + read + written,
        output_tokens=known.get("outputTokens", 0),
        cache_read_tokens=read,
        cache_write_tokens=written,
    )
