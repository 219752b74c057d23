"""Approvals of Strands Agents: interrupts of HumanInTheLoop, or of tools and hooks."""

from collections.abc import Mapping
from typing import Any

from strands.hooks import AfterToolCallEvent

from ..contract import AgentError
from ..messages import call_of

SAME_ID = "Two of the calls have the same id, so an answer cannot name one: send the prompt again."


def answers(other: Mapping[str, Any], reasons: Mapping[str, str | None]) -> list[Any]:
    """Return the input that resumes a paused agent. Raises `not_waiting`."""
    state = other["interrupt_state"]
    pending = state.get("pending_tool_execution") or {"assistant_message": {"content": []}}
    blocks = pending["assistant_message"]["content"]
    ids = [block["toolUse"]["toolUseId"] for block in blocks if "toolUse" in block]
    if len({*ids}) < len(ids):  # an older version stored the turn
        raise AgentError("not_waiting", SAME_ID)
    calls = {interrupt: call_of(interrupt) for interrupt in state["interrupts"]}
    return [
        {"interruptResponse": {"interruptId": name, "response": "no" if reasons[id] else "yes"}}
        for name, id in calls.items()
        if id in reasons
    ]


def prepare(reasons: Mapping[str, str | None], options: dict[str, Any]) -> None:
    """Return the person's reasons to the model as results of denied calls."""

    def explain(event: AfterToolCallEvent) -> None:
        reason = reasons.get(event.tool_use["toolUseId"])
        if reason and event.cancel_message:
            event.result["content"] = [{"text": f"Denied by a person: {reason}"}]

    if reasons:
        options.setdefault("hooks", []).append(explain)
