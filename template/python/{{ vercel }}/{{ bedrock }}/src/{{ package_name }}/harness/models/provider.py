"""A provider of the AI SDK for Amazon Bedrock's Converse API."""

import json
import re
from asyncio import wrap_future
from base64 import b64decode, b64encode
from collections.abc import AsyncGenerator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import ai
from ai import events, messages
from ai.providers import history_utils
from ai.types.usage import Usage

from ..contract import AgentError, is_blank
from ..files import FORMATS
from ..messages import mark, shown_to
from .aws_call import Call

REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_call",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "content_filtered": "content_filter",
    "guardrail_intervened": "guardrail_intervened",
}


MAX_NAME = 180  # characters; Bedrock accepts 200


class BedrockProvider(ai.Provider[Any]):
    """Sends text, tools and reasoning over a boto3 client for `bedrock-runtime`."""

    provider_class_id: Literal["bedrock"] = "bedrock"
    name: str = "bedrock"
    default_base_url: str = ""

    def __init__(self, client: Any, guardrail: dict[str, Any], *, caches: bool) -> None:
        super().__init__()
        self._guardrail = guardrail
        self._caches = caches
        self._set_client(client)

    async def stream(
        self,
        model: ai.Model,
        messages: list[messages.Message],
        *,
        tools: Sequence[ai.tools.Tool] | None = None,
        **_: Any,
    ) -> AsyncGenerator[events.Event]:
        shown = history_utils.repair(shown_to(model, messages))
        request = _request(model.id, shown, tools or [])
        request |= self._guardrail
        if self._caches and re.search(
            "claude|anthropic", model.id
        ):  # other models reject cache points
            _add_cache_points(request)
        thread = ThreadPoolExecutor(1)  # the client blocks; the same thread must read and close
        call = Call()
        opening = thread.submit(call.run, self.client.converse_stream, **request)
        try:
            response = await wrap_future(opening)
            chunks = iter(response["stream"])
            blocks = Blocks()
            yield events.StreamStart()
            reason = None
            usage = None
            while chunk := await wrap_future(thread.submit(next, chunks, None)):
                for event in blocks.read(chunk):
                    yield event
                reason = chunk.get("messageStop", {}).get("stopReason", reason)
                usage = chunk.get("metadata", {}).get("usage", usage)
            if reason:
                finish_reason = REASONS.get(reason, "other")
                end = events.StreamEnd(finish_reason=finish_reason, usage=_usage(usage or {}))
                yield mark(end, model)
        finally:
            call.end()
            thread.submit(lambda: opening.result()["stream"].close())
            thread.shutdown(wait=False)


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
                {"toolSpec": {"name": name, "description": text, "inputSchema": {"json": schema}}}
                for name, text, schema in specs
            ]
        }
    return request


def _add_cache_points(request: dict[str, Any]) -> None:
    """Add cache points after the system prompt and after the prompt.

    Memories follow the prompt and change with each turn.
    """
    point = {"cachePoint": {"type": "default"}}
    request.get("system", []).append(point)
    blocks = request["messages"][-1]["content"]
    blocks.insert(1 if "text" in blocks[0] else len(blocks), point)


def _block(part: Any) -> dict[str, Any] | None:
    if part.kind == "text":
        return {"text": part.text}
    if part.kind == "file":
        return _file(part)
    if part.kind == "reasoning":
        return _reasoning(part)
    if part.kind == "tool_call":
        arguments = json.loads(part.tool_args or "{}")
        call = {"toolUseId": part.tool_call_id, "name": part.tool_name, "input": arguments}
        return {"toolUse": call}
    if part.kind == "tool_result":
        content = _content_of(part.get_model_input())
        result = {"toolUseId": part.tool_call_id, "content": content}
        return {"toolResult": result | {"status": "error" if part.is_error else "success"}}
    return None


def _content_of(value: Any) -> list[dict[str, Any]]:
    """Return the content of a tool's result; files of other types become JSON."""
    if not isinstance(value, messages.ContentOutput) or not value.value:
        text = value if isinstance(value, str) else json.dumps(value, default=str)
        return [{"text": text or "(nothing)"}]
    return [
        (_file(part) if part.kind == "file" else None)
        or {"text": getattr(part, "text", "") or part.model_dump_json()}
        for part in value.value
    ]


def _file(part: ai.messages.FilePart) -> dict[str, Any] | None:
    """Return the block of a file. Bedrock requires different names of documents."""
    try:
        data = b64decode(part.data, validate=True) if isinstance(part.data, str) else part.data
    except ValueError:  # a URL of a tool
        return None
    if part.media_type not in FORMATS:
        return None
    fields = {"format": FORMATS[part.media_type], "source": {"bytes": data}}
    if part.media_type.startswith("image/"):
        return {"image": fields}
    name = re.sub(r"[^A-Za-z0-9()\[\]-]+", "-", part.filename or "file")[:MAX_NAME]
    return {"document": {"name": f"{name} {part.id[-8:]}", **fields}}


def _reasoning(part: ai.messages.ReasoningPart) -> dict[str, Any] | None:
    """Return signed or encrypted reasoning, which the model requires back."""
    known = (part.provider_metadata or {}).get("bedrock", {})
    if redacted := known.get("redacted"):
        return {"reasoningContent": {"redactedContent": b64decode(redacted)}}
    if signature := known.get("signature"):
        text = {"text": part.text, "signature": signature}
        return {"reasoningContent": {"reasoningText": text}}
    return None


class Blocks:
    """The content blocks of one answer."""

    def __init__(self) -> None:
        self._calls: dict[int, str] = {}  # the id of the latest call of each index
        self._ids: set[str] = set()
        self._open: set[int] = set()  # indexes of open calls, including Bedrock's own tools
        self._without_arguments: set[int] = set()  # indexes of calls without arguments
        self._texts: set[int] = set()
        self._reasoning: dict[int, dict[str, str]] = {}  # signature, or redacted content

    def read(self, chunk: dict[str, Any]) -> Iterator[events.Event]:
        """Yield the events of a chunk.

        Raises AgentError for arguments that may belong to another call.
        """
        [(kind, value)] = chunk.items()
        index = value.get("contentBlockIndex", 0)
        if kind == "contentBlockStop":
            self._open.discard(index)
        tool = value.get("start", {}).get("toolUse")
        if kind == "contentBlockStart" and tool:
            yield from self._start(index, tool)
        elif kind == "contentBlockDelta":
            yield from self._delta(index, value.get("delta", {}))
        elif kind == "contentBlockStop" and index in self._calls:
            done = messages.DUMMY_TOOL_CALL
            yield events.ToolEnd(tool_call_id=self._calls[index], tool_call=done)
        elif kind == "contentBlockStop" and index in self._reasoning:
            known = self._reasoning[index]
            metadata = {"bedrock": known} if known else None
            yield events.ReasoningEnd(block_id=str(index), provider_metadata=metadata)

    def _start(self, index: int, tool: dict[str, Any]) -> Iterator[events.Event]:
        self._open.add(index)
        if tool.get("type") == "server_tool_use":
            self._calls.pop(index, None)
            return
        if index in self._without_arguments:
            raise AgentError("model_failed", detail="two calls have one index")
        self._without_arguments.add(index)
        id = tool.get("toolUseId", "")
        if not id or id in self._ids:
            id = f"{id}.{len(self._ids)}"  # makes ids unique; `repair` renames them
        self._ids.add(id)
        self._calls[index] = id
        yield events.ToolStart(tool_call_id=id, tool_name=tool.get("name", ""))

    def _delta(self, index: int, delta: dict[str, Any]) -> Iterator[events.Event]:
        if "toolUse" in delta:
            yield from self._arguments(index, delta["toolUse"].get("input", ""))
        elif "text" in delta:
            if index not in self._texts:
                self._texts.add(index)
                yield events.TextStart(block_id=str(index))
            yield events.TextDelta(block_id=str(index), chunk=delta["text"])
        elif reasoning := delta.get("reasoningContent"):
            if index not in self._reasoning:
                self._reasoning[index] = {}
                yield events.ReasoningStart(block_id=str(index))
            known = self._reasoning[index]
            if signature := reasoning.get("signature"):
                known["signature"] = known.get("signature", "") + signature
            if redacted := reasoning.get("redactedContent"):
                before = b64decode(known.get("redacted", ""))
                known["redacted"] = b64encode(before + redacted).decode()
            if text := reasoning.get("text"):
                yield events.ReasoningDelta(block_id=str(index), chunk=text)

    def _arguments(self, index: int, text: str) -> Iterator[events.Event]:
        if text and index not in self._open:
            raise AgentError("model_failed", detail="arguments outside of a call")
        if not is_blank(text):
            self._without_arguments.discard(index)
        if index in self._calls:
            yield events.ToolDelta(tool_call_id=self._calls[index], chunk=text)


def _usage(known: dict[str, int]) -> Usage:
    read = known.get("cacheReadInputTokens", 0)
    written = known.get("cacheWriteInputTokens", 0)
    return Usage(
        input_tokens=known.get("inputTokens", 0) + read + written,
        output_tokens=known.get("outputTokens", 0),
        cache_read_tokens=read,
        cache_write_tokens=written,
    )
