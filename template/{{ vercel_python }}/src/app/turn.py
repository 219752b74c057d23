"""One turn as a transaction: stage a copy of the session, stream the reply, commit at the end."""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import ai

from .agent import SYSTEM_PROMPT, TOOLS
from .contract import AgentError, Ask, describe, is_blank, well_formed
from .parts import Parts

log = logging.getLogger(__name__)
Emit = Callable[[str], Awaitable[None]]
Message = ai.messages.Message


async def take_turn(parts: Parts, ask: Ask, emit: Emit) -> dict[str, Any]:
    """Run one turn, `emit` each chunk of the reply, and return {"actor", "turn", "key", "reply"}.

    The session changes in the last step only, so there is nothing to undo: a turn that raises,
    is cancelled, takes too long or ends without a whole reply leaves no trace.
    Raises AgentError.
    """
    try:
        async with parts.sessions.open(ask) as session:
            if last := session.replay():
                await emit(last["reply"])
                return last
            try:
                async with asyncio.timeout(parts.settings.turn_timeout_seconds):
                    staged = _stage(parts, session.snapshot)
                    reply, added = await _stream(parts, ask, staged, emit)
            except TimeoutError:
                raise AgentError("turn_timeout") from None
            last = await session.commit(_snapshot([*staged, *added]), reply)
            parts.record(ask, added)
    except AgentError as error:
        log.warning("session %s: %s %s", ask.session_id, error.type, error.detail)
        raise
    log.info("session %s: turn %d", ask.session_id, last["turn"])
    return last


def _stage(parts: Parts, committed: dict[str, Any] | None) -> list[Message]:
    """The history to go on from: the last whole turns, which share nothing with the session."""
    if not committed:
        return []
    messages = [Message.model_validate(message) for message in committed["data"]["messages"]]
    return _last_turns(messages, parts.settings.history_messages)


def _last_turns(messages: list[Message], limit: int) -> list[Message]:
    """The last whole turns in at most `limit` messages; the very last one in any case."""
    starts = [index for index, message in enumerate(messages) if message.role == "user"]
    return messages[next((s for s in starts if len(messages) - s <= limit), starts[-1]) :]


def _snapshot(messages: list[Message]) -> dict[str, Any]:
    """What is committed: no system prompt, as the code's own applies after an update of the code;
    and no reasoning, which may point at what only its provider keeps."""
    for message in messages:
        message.parts = [part for part in message.parts if part.kind != "reasoning"]
    dumped = [m.model_dump(mode="json", exclude_none=True, fallback=str) for m in messages]
    return {
        "scope": "agent",
        "schema_version": "1.0",
        "created_at": datetime.now(UTC).isoformat(),
        "data": {"messages": dumped},
        "app_data": {},
    }


async def _stream(
    parts: Parts, ask: Ask, history: list[Message], emit: Emit
) -> tuple[str, list[Message]]:
    """Run the agent to its end; return all that was emitted, and the messages of the turn."""
    said: list[str] = []
    prompt = ai.user_message(ask.prompt or "")
    staged = [ai.system_message(SYSTEM_PROMPT), *history, prompt]
    agent = _Agent(tools=TOOLS, **parts.agent_options(ask))
    agent.max_steps = parts.settings.max_steps
    try:
        async with agent.run(parts.model, staged) as run:
            async for event in run:
                if isinstance(event, ai.events.TextDelta) and event.chunk:
                    said.append(well_formed(event.chunk))
                    await emit(said[-1])
    except Exception as error:
        while isinstance(error, ExceptionGroup):
            error = error.exceptions[0]
        if isinstance(error, AgentError):
            raise error from None
        raise AgentError("model_failed", detail=describe(error)) from error
    if is_blank(run.messages[-1].text):
        raise AgentError("empty_reply")
    return "".join(said), [prompt, *run.messages[len(staged) :]]


class _Agent(ai.Agent):
    """An agent that takes so many steps at most, and calls tools only after a whole message."""

    LOOP_BUFFER = 0  # the model waits for a reader that is slow
    max_steps = 1

    async def loop(self, context: ai.Context) -> AsyncGenerator[ai.events.AgentEvent]:
        for _ in range(self.max_steps):
            reason = None
            async with ai.stream(context=context) as stream:
                async for event in stream:
                    yield event
                    if isinstance(event, ai.events.StreamEnd):
                        reason = event.finish_reason
            calls = _check(stream.message, reason, context.messages)
            context.add(stream.message)
            if not calls:
                return
            results = await asyncio.gather(*[self._call(call) for call in calls])
            for result in results:
                yield result
            context.add(ai.tool_message(*results))
        raise AgentError("reply_incomplete", detail=f"{self.max_steps} steps")

    async def _call(self, call: ai.messages.ToolCallPart) -> ai.events.ToolCallResult:
        """Call a tool; when that fails the model is told, and the turn goes on."""
        try:
            result = await self.resolve(call)()
        except KeyError as error:
            result = ai.tool_result(
                tool_call_id=call.tool_call_id,
                tool_name=call.tool_name,
                result=f"Unknown tool: {call.tool_name}",
                is_error=True,
                exception=error,
            )
        if result.exception is not None:
            log.warning("tool %s: %s", call.tool_name, describe(result.exception))
        return result


def _check(message: Message, reason: str | None, history: list[Message]) -> list[Any]:
    """The tools that a whole message calls, once it is one that any provider takes back."""
    calls = message.tool_calls
    if reason is None or reason == "error":
        raise AgentError("model_failed", detail="the stream was cut")
    if reason != "stop" and not (calls and reason == "tool_call"):
        raise AgentError("reply_incomplete", detail=reason)
    message.parts = [p for p in message.parts if p.kind != "text" or not is_blank(p.text)]
    known = {call.tool_call_id for earlier in history for call in earlier.tool_calls}
    for call in calls:
        if call.tool_call_id in known:
            call.tool_call_id = uuid4().hex[:9]  # which all providers allow
        known.add(call.tool_call_id)
        if not _is_object(call.tool_args):
            call.tool_args = "{}"
    return calls


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text or "{}"), dict)
    except ValueError:
        return False
