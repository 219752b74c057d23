"""One turn as a transaction: stage a copy of the session, stream the reply, commit at the end."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any

from strands import Agent, Snapshot
from strands.agent.conversation_manager import NullConversationManager
from strands.hooks import AfterToolCallEvent
from strands.types.agent import Limits
from strands.types.exceptions import MaxTokensReachedException

from .agent import SYSTEM_PROMPT, TOOLS
from .contract import AgentError, Ask, describe, is_blank, well_formed
from .parts import Parts

log = logging.getLogger(__name__)
Emit = Callable[[str], Awaitable[None]]


async def take_turn(parts: Parts, ask: Ask, emit: Emit) -> dict[str, Any]:
    """Run one turn, `emit` each chunk of the reply, and return {"actor", "turn", "key", "reply"}.

    The session changes in the last step only, so there is nothing to undo: a turn that raises,
    is cancelled, takes too long or ends without a whole reply leaves no trace.
    Raises AgentError.
    """
    async with parts.sessions.open(ask) as session:
        if last := session.replay():
            await emit(last["reply"])
            return last
        try:
            async with asyncio.timeout(parts.settings.turn_timeout_seconds):
                agent = _stage(parts, ask, session.snapshot)
                before = len(agent.messages)
                reply = await _stream(parts, agent, ask.prompt or "", emit)
        except TimeoutError:
            raise AgentError("turn_timeout") from None
        # Without the system prompt: after an update of the code, the code's own applies.
        snapshot = agent.take_snapshot(preset="session")
        last = await session.commit(snapshot.to_dict(), reply)
        parts.record(ask, agent.messages[before:])
    log.info("session %s: turn %d", ask.session_id, last["turn"])
    return last


def _stage(parts: Parts, ask: Ask, committed: dict[str, Any] | None) -> Agent:
    """A new agent that goes on where the session is, and shares nothing with it."""
    agent = Agent(
        model=parts.model,
        system_prompt=SYSTEM_PROMPT,
        tools=TOOLS,
        callback_handler=None,  # the default prints every token
        conversation_manager=NullConversationManager(),
        retry_strategy=None,  # a retry after the first chunk would repeat it
        hooks=[_log_tool_failure],
        **parts.agent_options(ask),
    )
    if committed:
        agent.load_snapshot(Snapshot.from_dict(committed))
        agent.messages[:] = _last_turns(agent.messages, parts.settings.history_messages)
    return agent


async def _stream(parts: Parts, agent: Agent, prompt: str, emit: Emit) -> str:
    """Run the agent to its end and return all that was emitted; raise unless it ended well."""
    said: list[str] = []
    result, is_whole = None, False
    events = agent.stream_async(prompt, limits=Limits(turns=parts.settings.max_steps))
    try:
        async with aclosing(events):  # type: ignore[type-var]
            async for event in events:
                if text := event.get("data"):
                    said.append(well_formed(text))
                    await emit(said[-1])
                if {"messageStart", "messageStop"} & event.get("event", {}).keys():
                    is_whole = "messageStop" in event["event"]
                result = event.get("result")
    except MaxTokensReachedException:
        raise AgentError("reply_incomplete", detail="max_tokens") from None
    except Exception as error:
        raise AgentError("model_failed", detail=describe(error)) from error
    if result is None or not is_whole:
        raise AgentError("model_failed", detail="the stream was cut")
    if result.stop_reason not in {"end_turn", "stop_sequence"}:
        raise AgentError("reply_incomplete", detail=result.stop_reason)
    if is_blank("".join(block.get("text", "") for block in result.message["content"])):
        raise AgentError("empty_reply")
    return "".join(said)


def _last_turns(messages: list[Any], limit: int) -> list[Any]:
    """The last whole turns in at most `limit` messages; the very last one in any case."""
    is_prompt = [m["role"] == "user" and "text" in m["content"][0] for m in messages]
    starts = [index for index, is_start in enumerate(is_prompt) if is_start]
    return messages[next((s for s in starts if len(messages) - s <= limit), starts[-1]) :]


def _log_tool_failure(event: AfterToolCallEvent) -> None:
    if event.exception is not None:  # its name, unless the model made it up
        name = event.selected_tool.tool_name if event.selected_tool else "that does not exist"
        log.warning("tool %s: %s", name, describe(event.exception))
