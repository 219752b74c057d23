"""Runs the Strands agent of a turn on a copy of the session."""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Collection, Iterator
from contextlib import aclosing, nullcontext, suppress
from contextvars import ContextVar
from functools import partial
from typing import Any, get_args

from strands import Agent
from strands import Snapshot as AgentSnapshot
from strands.agent.conversation_manager import NullConversationManager
from strands.hooks import AfterToolCallEvent, AfterToolsEvent, HookOrder
from strands.middleware import ExecuteToolStage
from strands.tools.decorator import DecoratedFunctionTool
from strands.types.agent import Limits
from strands.types.event_loop import StopReason
from strands.types.exceptions import MaxTokensReachedException

from .contract import (
    ERRORS,
    AgentError,
    Data,
    ToolCall,
    ToolResult,
    Turn,
    Usage,
    is_blank,
    refuse_options,
    value_of,
)
from .file_parts import files_in, to_parts
from .log import describe, place_of
from .messages import (
    Messages,
    Repairs,
    call_of,
    check_messages,
    decode,
    decode_content,
    merge,
    refused,
)
from .models.context_length import Shortening
from .models.rejected_files import AcceptedTypes
from .modules import AgentModule
from .sessions.sessions import Message, Snapshot, Stage
from .settings import CoreSettings

log = logging.getLogger(__name__)
# Options that `prepare` cannot set, with alternatives.
UNSUPPORTED_OPTIONS = {
    "callback_handler": "use the turn's `emit`",
    "conversation_manager": "set HISTORY_MESSAGES",
    "interventions": "define INTERVENTIONS in agent.py",
    "messages": "the session provides them",
    "retry_strategy": "a retry would repeat sent text",
    "session_manager": "choose a session store",
    "structured_output_model": "set the TurnRequest's `output`",
}
IN_TOOL = ContextVar("IN_TOOL", default=False)


async def answer_turn(
    stage: Stage,
    module: AgentModule,
    options: dict[str, Any],
    settings: CoreSettings,
    file_types: Collection[str],
) -> tuple[Snapshot, list[Message]]:
    """Run the agent; return the new snapshot and the messages of the turn.

    `file_types` are the media types that the model accepts. Raises AgentError unless the agent
    finished or waits for approvals.
    """
    turn = stage.turn
    IN_TOOL.set(False)  # a tool may have spawned this turn
    refuse_options(options, UNSUPPORTED_OPTIONS)
    shortening = Shortening(stage)
    agent = _make_agent(stage, module, options, settings)
    Repairs(agent, settings, shortening, AcceptedTypes(file_types, turn.request.files))
    try:
        await _stream(agent, stage, settings)
    finally:
        shortening.report()
        turn.usage += _usage_of(agent)
    # SDK hooks may add consecutive messages of the same role.
    new_messages = merge(agent.messages[stage.at :])
    if turn.request.output:
        new_messages = merge(_without_format_request(new_messages))
    agent.messages[stage.at :] = new_messages
    check_messages(new_messages, waits=bool(turn.waiting))
    # The preset omits the system prompt: each turn uses the current SYSTEM_PROMPT.
    snapshot = agent.take_snapshot(preset="session", exclude=["messages"]).to_dict()
    snapshot["data"]["messages"] = agent.messages  # avoids the SDK's copies
    return snapshot, new_messages


def _make_agent(
    stage: Stage,
    module: AgentModule,
    options: dict[str, Any],
    settings: CoreSettings,
) -> Agent:
    """Return a new agent with a copy of the session."""
    agent = Agent(
        callback_handler=None,  # the default prints every token
        conversation_manager=NullConversationManager(),
        interventions=getattr(module, "INTERVENTIONS", []),
        retry_strategy=None,  # a retry would repeat sent chunks
        **{"system_prompt": module.SYSTEM_PROMPT, **options},
    )
    # The SDK cannot infer the type of the event.
    agent.hooks.add_callback(AfterToolCallEvent, _log_tool_failure)
    end_turn = partial(_end_turn, stage, getattr(module, "FINAL_TOOLS", []))
    agent.hooks.add_callback(AfterToolsEvent, end_turn, order=HookOrder.SDK_LAST)
    running = asyncio.Semaphore(settings.max_tools_at_once)
    agent.add_middleware(ExecuteToolStage, partial(_contain, running))
    data = stage.data
    decode(data)
    # Avoid the SDK's copy of each message.
    agent.load_snapshot(AgentSnapshot("agent", "1.0", data | {"messages": []}, {}))
    agent.messages = Messages(data["messages"])
    return agent


def _usage_of(agent: Agent) -> Usage:
    usage = agent.event_loop_metrics.accumulated_usage
    reads = usage.get("cacheReadInputTokens", 0)
    writes = usage.get("cacheWriteInputTokens", 0)
    return Usage(usage["inputTokens"] + reads + writes, reads, usage["outputTokens"])


async def _stream(agent: Agent, stage: Stage, settings: CoreSettings) -> None:
    """Run the agent. Raises AgentError unless it finished or waits for approvals."""
    turn = stage.turn
    result = None
    is_whole = False
    size = 0
    # The SDK counts the last step of a resumed turn.
    earlier = sum(message["role"] == "assistant" for message in stage.resumed[:-1])
    limits = Limits(turns=max(1, settings.max_steps - earlier))
    events = agent.stream_async(
        stage.answers or _prompt_of(stage),
        limits=limits,
        structured_output_model=turn.request.output,
    )
    try:
        async with aclosing(events):  # type: ignore[type-var]
            async for event in events:
                size += _size(event)
                if size > settings.max_reply_bytes:
                    raise AgentError("reply_incomplete", detail="MAX_REPLY_BYTES")
                if text := event.get("data"):
                    await turn.say(text)
                if settings.reasoning and (text := event.get("reasoningText")):
                    await turn.reason(text)
                if progress := event.get("tool_stream_event"):
                    await _show_progress(agent, turn, progress)
                for use in tools_of(event.get("message", {"content": []})):
                    await turn.emit(use)
                if "event" in event:  # of the model
                    turn.model = turn.model or settings.model
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
    if result is not None and result.stop_reason == "interrupt":
        ids = {call_of(interrupt.id) for interrupt in result.interrupts}
        uses = tools_of(agent.messages[-1])
        turn.waiting = [use for use in uses if isinstance(use, ToolCall) and use.id in ids]
        if turn.waiting:
            return
    # After an approval, a final tool or MAX_STEPS ends the turn without a model call.
    is_over = result is not None and result.stop_reason == "limit_turns"
    if result is None or not (is_whole or stage.has_final_result or is_over):
        raise AgentError("model_failed", detail="the stream was cut")
    if result.stop_reason not in {"end_turn", "stop_sequence"}:
        # Do not log unknown reasons, which are provider text.
        reason = result.stop_reason if result.stop_reason in get_args(StopReason) else "other"
        raise AgentError(reason if reason in ERRORS else "reply_incomplete", detail=reason)
    text = "".join(block.get("text", "") for block in result.message["content"])
    if turn.request.output:
        turn.output = result.structured_output
        turn.texts = []
        if turn.output is None:
            raise AgentError("reply_incomplete", detail="no output")
        await turn.say(turn.output.model_dump_json())
    elif stage.has_final_result:
        await turn.say(text)
    elif is_blank(text):
        raise AgentError("empty_reply")


def _prompt_of(stage: Stage) -> Any:
    """Return the prompt of a turn, with its files."""
    files = to_parts(stage.turn.request.files) or stage.repeated_files
    decode_content(files)
    return [{"text": stage.turn.prompt}, *files] if files else stage.turn.prompt


def _end_turn(stage: Stage, final_tools: Collection[str], event: AfterToolsEvent) -> None:
    """End the turn with the result of a final tool, or with the output value."""
    output = stage.turn.request.output
    results = {result.id: result for result in tools_of(event.message)}
    for call in tools_of(event.agent.messages[-1]):
        result = results.get(call.id)
        if not isinstance(call, ToolCall) or not isinstance(result, ToolResult) or result.is_error:
            continue
        if output:
            if call.name == output.__name__:
                event.end_turn = output.model_validate(call.input).model_dump_json()
        elif call.name in final_tools and not is_blank(result.text):
            event.end_turn = result.text
            stage.has_final_result = True
            return


async def _show_progress(agent: Agent, turn: Turn, progress: Any) -> None:
    """Send the values of a generator tool, but not the events of an agent tool."""
    tool = agent.tool_registry.registry.get(progress["tool_use"]["name"])
    if isinstance(tool, DecoratedFunctionTool):
        with suppress(ValueError):  # skip values that are not JSON
            await turn.emit(Data("progress", progress["data"]))


def _without_format_request(new_messages: list[Message]) -> list[Message]:
    """Remove the SDK's request to format the answer, and the unformatted answer before it."""
    for number, message in enumerate(new_messages):
        if number and message["role"] == "user" and "text" in message["content"][0]:
            return [*new_messages[: number - 1], *new_messages[number + 1 :]]
    return new_messages


def describe_tools(tools: list[Any]) -> list[tuple[str, str]]:
    """Return the name and the description of each tool."""
    return [declaration_of(tool)[:2] for tool in tools]


def declaration_of(tool: Any) -> tuple[str, str, Any]:
    """Return the name, the description and the JSON Schema of a tool."""
    spec = tool.tool_spec
    return tool.tool_name, spec["description"], spec["inputSchema"].get("json")


def tools_of(message: Any) -> Iterator[ToolCall | ToolResult]:
    """Yield the tool calls and results in a message."""
    for block in message["content"]:
        yield from tools_in(block, message)


def tools_in(block: Any, message: Any) -> Iterator[ToolCall | ToolResult]:
    """Yield the tool call or result in a block."""
    if call := block.get("toolUse"):
        id = call["toolUseId"]
        yield ToolCall(id, call["name"], refused(message).get(id, call["input"]))
    if done := block.get("toolResult"):
        text = "\n".join(map(_text_of, done["content"]))
        is_error = done["status"] == "error"
        yield ToolResult(done["toolUseId"], text, is_error, value_of(text), files_in(done))


def _text_of(part: dict[str, Any]) -> str:
    """Return a part of a result as text; a file becomes its type, as in `[image]`."""
    if "text" in part:
        return str(part["text"])
    return json.dumps(part, default=str) if "json" in part else f"[{', '.join(part)}]"


def _size(event: dict[str, Any]) -> int:
    """Return the number of bytes of text, reasoning or tool arguments in an event."""
    delta = event.get("event", {}).get("contentBlockDelta", {}).get("delta", {})
    reasoning = delta.get("reasoningContent", {}).get("text")
    text = delta.get("text") or reasoning or delta.get("toolUse", {}).get("input") or ""
    return len(text.encode(errors="replace"))


async def _contain(running: asyncio.Semaphore, context: Any, run: Any) -> AsyncGenerator[Any, None]:
    """Run a tool when the limit on concurrent tools allows it.

    A tool that exits the process, as argparse does, fails instead.
    """
    # A nested tool call would wait for its caller.
    async with nullcontext() if IN_TOOL.get() else running:
        IN_TOOL.set(True)  # in the task of this call
        events = run(context)
        while True:
            try:
                event = await anext(events)
            except StopAsyncIteration:
                return
            except (SystemExit, KeyboardInterrupt, GeneratorExit) as error:
                raise RuntimeError(repr(error)) from error
            yield event


def _log_tool_failure(event: AfterToolCallEvent) -> None:
    # The log must not contain a name that the model invented.
    if event.exception is not None:
        name = event.selected_tool.tool_name if event.selected_tool else "that does not exist"
        why = describe(event.exception) + place_of(event.exception)
        log.warning("tool %s: %s", name, why)
