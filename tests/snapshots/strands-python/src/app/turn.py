"""One turn as a transaction: stage a copy of the session, stream the reply, commit at the end."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from contextvars import copy_context
from functools import partial
from typing import Any, get_args

from strands import Agent, Snapshot
from strands.agent.conversation_manager import NullConversationManager
from strands.hooks import AfterToolCallEvent
from strands.types.agent import Limits
from strands.types.event_loop import StopReason
from strands.types.exceptions import MaxTokensReachedException

from .agent import SYSTEM_PROMPT, TOOLS
from .contract import AgentError, TurnReport, TurnRequest, describe, is_blank, well_formed
from .runtime import Runtime

log = logging.getLogger(__name__)
Emit = Callable[[str], Awaitable[None]]


async def take_turn(
    runtime: Runtime, request: TurnRequest, emit: Emit, report: TurnReport | None = None
) -> dict[str, Any]:
    """Run one turn, `emit` each chunk of the reply, and return {"actor", "turn", "key", "reply"}.

    The session changes only in the last step, so there is nothing to undo: a turn that fails,
    is cancelled, times out or ends without a whole reply leaves no trace.
    Raises AgentError.
    """
    report = report or TurnReport()
    async with runtime.sessions.open(request.session_id, request.actor) as session:
        report.turn = session.turn
        if last := session.replay(request.key):
            report.turn, report.outcome = last["turn"], "replayed"
            await emit(last["reply"])
            return last
        try:
            async with asyncio.timeout(runtime.settings.turn_timeout_seconds):
                agent = _stage(runtime, request, session.snapshot)
                before = len(agent.messages)
                usage = agent.event_loop_metrics.accumulated_usage
                try:
                    reply = await _stream(runtime, agent, request.prompt, emit)
                finally:
                    report.input_tokens = usage["inputTokens"]
                    report.output_tokens = usage["outputTokens"]
        except TimeoutError:
            raise AgentError("turn_timeout") from None
        # Without the system prompt: the code's own applies, also after it has changed.
        snapshot = agent.take_snapshot(preset="session")
        added = agent.messages[before:]
        record = partial(copy_context().run, runtime.record, request, added)
        return await session.commit(snapshot.to_dict(), reply, request.key, record)


def _stage(runtime: Runtime, request: TurnRequest, committed: dict[str, Any] | None) -> Agent:
    """Return a new agent that continues the session and shares no state with it."""
    agent = Agent(
        model=runtime.model,
        system_prompt=SYSTEM_PROMPT,
        tools=TOOLS,
        callback_handler=None,  # the default prints every token
        conversation_manager=NullConversationManager(),
        retry_strategy=None,  # a retry after the first chunk would repeat it
        hooks=[_log_tool_failure],
        **runtime.agent_options(request),
    )
    if committed:
        agent.load_snapshot(Snapshot.from_dict(committed))
        agent.messages[:] = _last_turns(agent.messages, runtime.settings.history_messages)
    return agent


async def _stream(runtime: Runtime, agent: Agent, prompt: str, emit: Emit) -> str:
    """Run the agent and return the emitted text; raise AgentError unless it ended well."""
    said: list[str] = []
    result, is_whole, size = None, False, 0
    events = agent.stream_async(prompt, limits=Limits(turns=runtime.settings.max_steps))
    try:
        async with aclosing(events):  # type: ignore[type-var]
            async for event in events:
                size += _size(event)
                if size > runtime.settings.max_reply_bytes:
                    raise AgentError("reply_incomplete", detail="MAX_REPLY_BYTES")
                if text := event.get("data"):
                    said.append(well_formed(text))
                    await emit(said[-1])
                if {"messageStart", "messageStop"} & event.get("event", {}).keys():
                    is_whole = "messageStop" in event["event"]
                result = event.get("result")
    except MaxTokensReachedException:
        raise AgentError("reply_incomplete", detail="max_tokens") from None
    except Exception as error:
        for limit in (error, error.__cause__):
            if isinstance(limit, AgentError):
                raise limit from None
        raise AgentError("model_failed", detail=describe(error)) from error
    if result is None or not is_whole:
        raise AgentError("model_failed", detail="the stream was cut")
    if result.stop_reason not in {"end_turn", "stop_sequence"}:
        # A reason that is not known is a text of the provider, and not logged.
        known = result.stop_reason in get_args(StopReason)
        raise AgentError("reply_incomplete", detail=result.stop_reason if known else "other")
    if is_blank("".join(block.get("text", "") for block in result.message["content"])):
        raise AgentError("empty_reply")
    return "".join(said)


def _size(event: dict[str, Any]) -> int:
    """Return how many bytes of text or tool arguments an event brings."""
    delta = event.get("event", {}).get("contentBlockDelta", {}).get("delta", {})
    text = delta.get("text") or delta.get("toolUse", {}).get("input") or ""
    return len(text.encode(errors="replace"))


def _last_turns(messages: list[Any], limit: int) -> list[Any]:
    """Return the last whole turns that fit into `limit` messages; at least the very last one."""
    is_prompt = [m["role"] == "user" and "text" in m["content"][0] for m in messages]
    starts = [index for index, is_start in enumerate(is_prompt) if is_start]
    return messages[next((s for s in starts if len(messages) - s <= limit), starts[-1]) :]


def _log_tool_failure(event: AfterToolCallEvent) -> None:
    if event.exception is not None:  # a name that the model made up is not logged
        name = event.selected_tool.tool_name if event.selected_tool else "that does not exist"
        log.warning("tool %s: %s", name, describe(event.exception))
