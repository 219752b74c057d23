"""Runs the AI SDK agent of a turn on a copy of the session."""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Collection
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Any, cast

import ai
from pydantic import TypeAdapter

from .contract import (
    ERRORS,
    AgentError,
    Data,
    File,
    ToolCall,
    ToolResult,
    Turn,
    Usage,
    is_blank,
    refuse_options,
    value_of,
)
from .deadline import is_cancelled
from .file_parts import files_in, media_types_in, sendable, to_parts
from .log import describe, place_of
from .messages import (
    CallPart,
    Message,
    bounded,
    check_messages,
    input_of,
    invented_name,
    mend_stored,
    refusal,
    repair,
    results_in,
)
from .models.context_length import Shortening
from .models.rejected_files import AcceptedTypes
from .modules import AgentModule
from .sessions.sessions import Snapshot, Stage
from .settings import CoreSettings

log = logging.getLogger(__name__)
MESSAGES = TypeAdapter(list[Message])
PARTS = TypeAdapter(list[ai.messages.Part])
DELTAS = (ai.events.TextDelta, ai.events.ReasoningDelta, ai.events.ToolDelta)
CANCEL_SECONDS = 0.5  # between looks at the task of a cancelled turn's model


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
    shortening = Shortening(stage)
    try:
        messages = await _stream(stage, module, options, settings, shortening, file_types)
    finally:
        shortening.report()
    check_messages(messages, stage.at, waits=bool(stage.turn.waiting))
    new_messages = messages[stage.at :]
    return _snapshot([*stage.history, *map(_dump, new_messages)]), new_messages


def _dump(message: Message) -> dict[str, Any]:
    return message.model_dump(mode="json", exclude_none=True, fallback=str)


def _snapshot(messages: list[dict[str, Any]]) -> dict[str, Any]:
    # Store no system prompt: each turn uses the current SYSTEM_PROMPT.
    snapshot = {"scope": "agent", "schema_version": "1.0", "data": {"messages": messages}}
    return snapshot | {"created_at": datetime.now(UTC).isoformat().replace("+00:00", "Z")}


async def _stream(
    stage: Stage,
    module: AgentModule,
    options: dict[str, Any],
    settings: CoreSettings,
    shortening: Shortening,
    file_types: Collection[str],
) -> list[Message]:
    """Run the agent and return the messages of the session."""
    turn = stage.turn
    output = turn.request.output
    unsupported = options.keys() - {"agent", "model", "tools"}
    refuse_options(options, dict.fromkeys(unsupported, "only `agent`, `model` and `tools`"))
    size = 0
    messages = [
        ai.system_message(module.SYSTEM_PROMPT),
        *mend_stored(MESSAGES.validate_python(stage.history)),
        # Calls of a resumed turn keep their ids for the approvals.
        *MESSAGES.validate_python(stage.resumed),
    ]
    if not stage.answers:
        files = to_parts(turn.request.files) or PARTS.validate_python(stage.repeated_files)
        messages.append(ai.user_message(turn.prompt, *files))
    options = {"agent": TurnAgent, **options}
    model = options.pop("model")
    agent = options.pop("agent")(**options)
    agent.settings = settings
    agent.stage = stage
    agent.turn = turn
    agent.running = asyncio.Semaphore(settings.max_tools_at_once)
    agent.shortening = shortening
    agent.accepted = AcceptedTypes(file_types, turn.request.files)
    agent.final_tools = [] if output else getattr(module, "FINAL_TOOLS", [])
    try:
        async with _cancelling(agent), agent.run(model, messages, output_type=output) as run:
            async for event in run:
                if isinstance(event, DELTAS):
                    size += len(event.chunk.encode(errors="replace"))
                if size > settings.max_reply_bytes:
                    raise AgentError("reply_incomplete", detail="MAX_REPLY_BYTES")
                if isinstance(event, ai.events.StreamEnd) and event.message.usage:
                    turn.usage += _usage_of(event.message.usage)
                if isinstance(event, ai.events.TextDelta) and event.chunk:
                    await turn.say(event.chunk)
                if settings.reasoning and isinstance(event, ai.events.ReasoningDelta):
                    await turn.reason(event.chunk)
                if isinstance(event, ai.events.PartialToolCallResult):
                    with suppress(ValueError):  # skip events of an agent tool, which are not JSON
                        await turn.emit(Data("progress", event.value))
    except Exception as error:
        while isinstance(error, ExceptionGroup):
            error = error.exceptions[0]
        if isinstance(error, AgentError):
            raise error from None
        raise AgentError("model_failed", detail=describe(error)) from error
    reply = run.messages[-1].text
    if not reply and not turn.waiting:
        raise AgentError("empty_reply")
    if output and not turn.waiting:
        turn.texts = [reply]
        try:
            turn.output = output.model_validate_json(reply)
        except ValueError:
            raise AgentError("reply_incomplete", detail="no output") from None
    return list[Message](run.messages[1:])


@asynccontextmanager
async def _cancelling(agent: "TurnAgent") -> AsyncIterator[None]:
    """Cancel the task of the model if the turn is cancelled and the SDK does not do it.

    The SDK leaves out a task that already has a cancellation request. A client of a model makes
    such a request to its own task, and withdraws it, when it connects: the turn would never end.
    """
    loop = asyncio.get_running_loop()
    turn = cast(asyncio.Task[Any], asyncio.current_task())
    timer: asyncio.TimerHandle

    def look() -> None:
        nonlocal timer
        task = agent.task
        if turn.cancelling() and task and not task.cancelling():
            task.cancel()
        timer = loop.call_later(CANCEL_SECONDS, look)

    timer = loop.call_later(CANCEL_SECONDS, look)
    try:
        yield
    finally:
        timer.cancel()


def _usage_of(usage: ai.types.usage.Usage) -> Usage:
    return Usage(usage.input_tokens, usage.cache_read_tokens or 0, usage.output_tokens)


class TurnAgent(ai.Agent):
    """An agent that runs at most MAX_STEPS steps."""

    LOOP_BUFFER = 0  # a slow reader pauses the model
    settings: CoreSettings
    stage: Stage
    turn: Turn
    running: asyncio.Semaphore  # limits concurrent tools
    shortening: Shortening
    accepted: AcceptedTypes
    final_tools: Collection[str]
    task: asyncio.Task[Any] | None = None  # runs the loop

    async def loop(self, context: ai.Context) -> AsyncGenerator[ai.events.AgentEvent]:
        self.task = asyncio.current_task()
        max_calls = self.settings.max_tool_calls
        earlier = sum(message["role"] == "assistant" for message in self.stage.resumed)
        for _ in range(earlier, self.settings.max_steps):
            answer = None
            reason = None
            while answer is None:
                has_begun = False
                messages = sendable(context.messages, self.accepted.types)
                try:
                    sent = context.model_copy(update={"messages": messages})
                    async with ai.stream(context=sent) as stream:
                        async for event in stream:
                            if is_cancelled():  # the model's client has ignored it
                                raise asyncio.CancelledError
                            has_begun = has_begun or not isinstance(event, ai.events.StreamStart)
                            if has_begun:
                                self.turn.model = self.turn.model or self.settings.model
                            yield event
                            if isinstance(event, ai.events.StreamEnd):
                                reason = event.finish_reason
                    answer = stream.message
                except asyncio.CancelledError as error:
                    if is_cancelled():
                        raise
                    # The SDK would wait for an event after this error.
                    raise AgentError("model_failed", detail=describe(error)) from None
                except Exception as error:
                    if has_begun:
                        raise
                    if not self.accepted.reduce(error, media_types_in(messages)):
                        await self.shorten(error, context.messages)
            _check(reason)
            names = {tool.name: tool.require_approval for tool in self.tools}
            calls = repair(answer, context.messages, names.keys(), max_calls)
            context.add(answer)
            gated = [call for call in calls if names.get(call.tool_name) and self.can_run(call)]
            self.turn.waiting = [*map(as_tool_call, gated)]
            if not calls or not await self.run_tools(context, calls):
                return
            if await self.end_with_result(context):
                return
        raise AgentError("reply_incomplete", detail=f"{self.settings.max_steps} steps")

    async def shorten(self, error: Exception, messages: list[Message]) -> None:
        """Shorten the messages of a request. Re-raises the error if it has another reason."""
        end = 1 + len(self.shortening.history)  # after the system prompt
        await self.shortening.shorten(error, results_in(messages[end:]))
        messages[1:end] = mend_stored(MESSAGES.validate_python(self.shortening.history))

    async def run_tools(self, context: ai.Context, calls: list[CallPart]) -> bool:
        """Run the tools and return True, unless calls wait for approvals."""
        if not self.turn.waiting:
            context.add(ai.tool_message(*await asyncio.gather(*map(self.call, calls))))
        return not self.turn.waiting

    async def end_with_result(self, context: ai.Context) -> bool:
        """Reply with the text of a final tool's result; return whether there is one."""
        results = context.messages[-1].tool_results
        parts = [part for part in results if part.tool_name in self.final_tools]
        texts = [as_tool_result(part).text for part in parts if not part.is_error]
        text = next((text for text in texts if not is_blank(text)), "")
        if text:
            context.add(ai.assistant_message(text))
            await self.turn.say(text)
        return text != ""

    def can_run(self, call: CallPart) -> bool:
        """Whether a call has valid arguments and a valid name."""
        return not refusal(call) and not invented_name(call)

    async def call(self, call: CallPart) -> ai.events.ToolCallResult:
        """Call a tool; a failure becomes a result for the model."""
        name = invented_name(call) or call.tool_name
        await self.turn.emit(as_tool_call(call))
        ids: Any = {"tool_call_id": call.tool_call_id, "tool_name": call.tool_name}
        try:
            if text := refusal(call):
                result = ai.tool_result(**ids, result=text, is_error=True)
            elif invented_name(call):
                raise KeyError(name)
            else:
                async with self.running:
                    result = await self.resolve(call)()
        except (SystemExit, KeyboardInterrupt, GeneratorExit) as error:  # must not end other turns
            result = ai.tool_result(**ids, result=repr(error), is_error=True, exception=error)
        except KeyError as error:
            text = f"Unknown tool: {name}"
            name = "that does not exist"
            result = ai.tool_result(**ids, result=text, is_error=True, exception=error)
        if result.exception is not None:  # do not log invented names
            why = describe(result.exception) + place_of(result.exception)
            log.warning("tool %s: %s", name, why)
        parts = [bounded(part, self.settings.max_result_chars) for part in result.results]
        for part in parts:
            await self.turn.emit(as_tool_result(part))
        return ai.tool_result(*parts)


def describe_tools(tools: list[Any]) -> list[tuple[str, str]]:
    """Return the name and the description of each tool."""
    return [declaration_of(tool)[:2] for tool in tools]


def declaration_of(tool: Any) -> tuple[str, str, Any]:
    """Return the name, the description and the JSON Schema of a tool."""
    return tool.name, tool.tool.spec.description or "", tool.tool.spec.params


def as_tool_call(call: CallPart) -> ToolCall:
    """Convert the SDK's tool call."""
    return ToolCall(call.tool_call_id, call.tool_name, input_of(call))


def as_tool_result(part: ai.messages.ToolResultPart) -> ToolResult:
    """Convert the SDK's tool result; a file becomes its type, as in `[image]`."""
    output = part.result
    files: list[File] = []
    if isinstance(output, ai.messages.ContentOutput):
        files = files_in(output.value)
        output = "\n".join(map(_text_of, output.value))
    text = output if isinstance(output, str) else json.dumps(output, default=str)
    return ToolResult(part.tool_call_id, text, part.is_error, value_of(text), files)


def _text_of(part: ai.messages.TextPart | ai.messages.FilePart) -> str:
    if isinstance(part, ai.messages.TextPart):
        return part.text
    return f"[{part.media_type.partition('/')[0]}]"


def _check(reason: str | None) -> None:
    """Raise AgentError unless the model finished its answer."""
    if reason is None or reason == "error":
        raise AgentError("model_failed", detail="the stream was cut")
    if reason not in {"stop", "tool_call"}:
        raise AgentError(reason if reason in ERRORS else "reply_incomplete", detail=reason)
