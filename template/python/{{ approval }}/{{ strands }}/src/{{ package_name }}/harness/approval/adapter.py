"""Approvals of Strands Agents: interrupts of HumanInTheLoop, or of tools and hooks."""

from collections.abc import Mapping
from typing import Any

from strands.hooks import AfterToolsEvent

from ..contract import AgentError
from ..messages import call_of
from ..turn import tools_of

SAME_ID = "Two of the calls have the same id, so an answer cannot name one: send the prompt again."


def answers(other: Mapping[str, Any], reasons: Mapping[str, str | None]) -> list[Any]:
    """Return the input that resumes a paused agent. Raises `not_waiting`."""
    state = other["interrupt_state"]
    pending = state.get("pending_tool_execution") or {"assistant_message": {"content": []}}
    blocks = pending["assistant_message"]["content"]
    ids = [block["toolUse"]["toolUseId"] for block in blocks if "toolUse" in block]
    if len({*ids}) < len(ids):  # an older version stored the turn
        raise AgentError("not_waiting", SAME_ID)
    interrupts = state["interrupts"].items()
    # An answer from before this wait stays.
    calls = {name: call_of(name) for name, it in interrupts if it["response"] is None}
    return [
        {"interruptResponse": {"interruptId": name, "response": "no" if reasons[id] else "yes"}}
        for name, id in calls.items()
        if id in reasons
    ]


def with_denials(other: dict[str, Any], reasons: Mapping[str, str | None]) -> dict[str, Any]:
    """Return the framework's data with a result for each denied call, which then never runs.

    The SDK calls no gate for a call with a result: the gate of a new deployment may let it run.
    """
    state = other["interrupt_state"]
    pending = state["pending_tool_execution"]
    denials = [
        {"toolUseId": id, "status": "error", "content": [{"text": f"Denied by a person: {reason}"}]}
        for id, reason in reasons.items()
        if reason
    ]
    results = [*pending["completed_tool_results"], *denials]
    pending = pending | {"completed_tool_results": results}
    return other | {"interrupt_state": state | {"pending_tool_execution": pending}}


def prepare(options: dict[str, Any]) -> None:
    """Keep results in the order of the calls. The agent's gates make calls pending."""
    options.setdefault("hooks", []).append(_sort_results)


def _sort_results(event: AfterToolsEvent) -> None:
    """Sort the results of a step: the SDK begins with those from before an approval.

    Blocks that other hooks added follow the results.
    """
    places = {call.id: place for place, call in enumerate(tools_of(event.agent.messages[-1]))}
    event.message["content"].sort(
        key=lambda block: places.get(block.get("toolResult", {}).get("toolUseId", ""), len(places))
    )
