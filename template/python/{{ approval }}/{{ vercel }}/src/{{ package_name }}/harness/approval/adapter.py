"""Approvals of the AI SDK: tools with `require_approval`."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from typing import Any

import ai

from ..messages import CallPart
from ..turn import TurnAgent, as_tool_call


def answers(other: Mapping[str, Any], reasons: Mapping[str, str | None]) -> dict[str, Any]:
    """Return the answers by the ids of the calls, as ToolApproval of the SDK."""
    return {id: {"granted": reason is None, "reason": reason} for id, reason in reasons.items()}


def with_denials(other: dict[str, Any], reasons: Mapping[str, str | None]) -> dict[str, Any]:
    """Return the data unchanged: `WaitingAgent` runs no denied call."""
    return other


def prepare(options: dict[str, Any]) -> None:
    """Use an agent that makes calls pending."""
    options["agent"] = WaitingAgent


class WaitingAgent(TurnAgent):
    """Runs calls without approval before the turn is pending, and does not repeat them."""

    async def loop(self, context: ai.Context) -> AsyncGenerator[ai.events.AgentEvent]:
        if calls := context.messages[-1].tool_calls:  # of a resumed turn
            if not await self.run_tools(context, calls):
                return
            if await self.end_with_result(context):
                return
        async for event in super().loop(context):
            yield event

    def resolve(self, tool_part: Any) -> Any:
        """Return a function that runs a call, unless the call has a result or was denied.

        A new deployment may have changed `require_approval`, or removed the tool.
        """
        id = tool_part.tool_call_id
        result = tool_part.cached_result
        answer = (self.stage.answers or {}).get(id)
        if answer and not answer["granted"]:
            text = f"Denied by a person: {answer['reason']}"
            name = tool_part.tool_name
            result = ai.tool_result_part(id, result=text, tool_name=name, is_error=True)
        if result is None:
            return super().resolve(tool_part)

        async def finish() -> ai.events.ToolCallResult:
            return ai.tool_result(result)

        return finish

    async def run_tools(self, context: ai.Context, calls: list[CallPart]) -> bool:
        """Run the calls that need no approval; return whether no call is pending."""
        answers = self.stage.answers or {}
        waiting = [
            call
            for call in calls
            if call.tool_call_id not in answers and self._needs_approval(call)
        ]
        others = [call for call in calls if call not in waiting]
        for call in others:
            if call.tool_call_id in answers:
                ai.resolve_hook(f"approve_{call.tool_call_id}", answers[call.tool_call_id])
        results = await asyncio.gather(*map(self.call, others))
        self.turn.waiting = [as_tool_call(call) for call in waiting]
        for call, result in zip(others, results, strict=True):
            call.cached_result = result.results[0] if waiting else None
        for part in self.turn.waiting:
            await self.turn.emit(part)
        if not waiting:
            context.add(ai.tool_message(*results))
        return not waiting

    def _needs_approval(self, call: CallPart) -> bool:
        if call.cached_result or not self.can_run(call):
            return False
        with suppress(KeyError, ValueError):  # approved without a person
            tool = self.resolve(call)
            return tool.kwargs is not None and isinstance(tool, ai.agents.GatedToolCall)
        return False
