"""Reads Anthropic's stream of an answer without parsing the arguments of calls.

The SDK's own reader fails for arguments that are not JSON, and for answers without usage.
"""

import json
from collections.abc import AsyncGenerator, Iterator
from types import SimpleNamespace
from typing import Any, Self

from ..contract import AgentError, is_blank
from ..tool_schemas import parse_arguments

REDACTED = "redacted:"  # the prefix of a signature that contains redacted thinking
NO_INPUT: Any = (None, "", {})  # empty arguments at the start of a call


class Snapshot:
    """The message so far, in the fields that the AI SDK reads."""

    def __init__(self) -> None:
        self.id: str | None = None
        self.model: str | None = None
        self.stop_reason: str | None = None
        self.content: list[Any] = []
        self.usage = Usage()


class Usage:
    """Token counts; None means unknown."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None

    def update(self, counts: Any) -> None:
        """Adopt the counts of an event, which are totals."""
        for name in self.__class__.__annotations__:
            value = getattr(counts, name, None)
            if isinstance(value, int):
                setattr(self, name, value)

    def model_dump(self, **_: Any) -> dict[str, Any]:
        """Return the counts."""
        return dict(vars(self))


class MessagesStream:
    """Replaces `client.messages.stream(...)`; yields the events that the AI SDK reads."""

    def __init__(self, client: Any, request: dict[str, Any]) -> None:
        self._client = client
        self._request = request
        self._raw: Any = None
        self._inputs: dict[int, Any] = {}  # arguments at the start of a call
        self._texts: dict[int, list[str]] = {}  # later arguments
        self._ids: set[str] = set()
        self._open: set[int] = set()  # indexes of open blocks
        self._without_arguments: set[int] = set()  # indexes of calls without arguments
        self.current_message_snapshot = Snapshot()

    async def __aenter__(self) -> Self:
        self._raw = await self._client.messages.create(**self._request, stream=True)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._raw.close()

    async def __aiter__(self) -> AsyncGenerator[Any]:
        async for event in self._raw:
            self._check(event)
            if event.type == "content_block_start":
                for delta in self._late_inputs(event.index):  # of an earlier call that did not end
                    yield delta
                self._texts.pop(event.index, None)
                parts = [*self._start(event)]
                yield event
                for part in parts:
                    yield part
                continue
            if event.type == "content_block_delta" and event.delta.type == "input_json_delta":
                if event.index in self._inputs:
                    self._texts.setdefault(event.index, []).append(event.delta.partial_json)
            elif event.type in {"content_block_stop", "message_delta"}:
                for delta in self._late_inputs(getattr(event, "index", None)):
                    yield delta
            self._update(event)
            yield event

    def _check(self, event: Any) -> None:
        """Raise AgentError for arguments that may belong to another call."""
        if event.type == "content_block_start":
            self._open.add(event.index)
            if event.content_block.type == "tool_use":
                if event.index in self._without_arguments:
                    raise AgentError("model_failed", detail="two calls have one index")
                if event.content_block.input in NO_INPUT:
                    self._without_arguments.add(event.index)
        elif event.type == "content_block_stop":
            self._open.discard(event.index)
        elif event.type == "content_block_delta" and event.delta.type == "input_json_delta":
            text = event.delta.partial_json
            if text and event.index not in self._open:
                raise AgentError("model_failed", detail="arguments outside of a call")
            if not is_blank(text):
                self._without_arguments.discard(event.index)

    def _start(self, event: Any) -> Iterator[Any]:
        """Yield the content of a block's start as deltas."""
        block = event.content_block
        index = event.index
        self.current_message_snapshot.content.append(block)
        if block.type == "text" and block.text:
            yield _delta(index, "text_delta", text=block.text)
        elif block.type == "thinking":
            if block.thinking:
                yield _delta(index, "thinking_delta", thinking=block.thinking)
            if block.signature:
                yield _delta(index, "signature_delta", signature=block.signature)
        elif block.type == "redacted_thinking":
            event.content_block = SimpleNamespace(type="thinking")
            yield _delta(index, "signature_delta", signature=REDACTED + block.data)
        elif block.type == "tool_use":
            block.id = str(block.id or "")
            block.name = str(block.name or "")
            if not block.id or block.id in self._ids:
                block.id = f"{block.id}.{index}"  # makes ids unique; `repair` renames them
            self._ids.add(block.id)
            if block.input not in NO_INPUT:
                self._inputs[index] = block.input

    def _late_inputs(self, index: int | None) -> Iterator[Any]:
        """Yield the arguments from the start of a call, or of all calls.

        If later arguments differ, both together are not a JSON object, so the call fails.
        """
        for at in [index] if index is not None else [*self._inputs]:
            if at in self._inputs:
                first = self._inputs.pop(at)
                if parse_arguments("".join(self._texts.get(at, []))) != first:
                    yield _delta(at, "input_json_delta", partial_json=json.dumps(first))

    def _update(self, event: Any) -> None:
        snapshot = self.current_message_snapshot
        if event.type == "message_start":
            snapshot.id = event.message.id
            snapshot.model = event.message.model
            snapshot.usage.update(getattr(event.message, "usage", None))
        elif event.type == "message_delta":
            snapshot.stop_reason = event.delta.stop_reason
            snapshot.usage.update(getattr(event, "usage", None))


def with_redacted_thinking(messages: list[dict[str, Any]]) -> None:
    """Restore the original form of redacted thinking in a request."""
    for message in messages:
        for block in message["content"] if isinstance(message["content"], list) else []:
            if block["type"] == "thinking" and block["signature"].startswith(REDACTED):
                data = block["signature"].removeprefix(REDACTED)
                block.clear()
                block.update(type="redacted_thinking", data=data)


def _delta(index: int, kind: str, **value: str) -> Any:
    delta = SimpleNamespace(type=kind, **value)
    return SimpleNamespace(type="content_block_delta", index=index, delta=delta)
