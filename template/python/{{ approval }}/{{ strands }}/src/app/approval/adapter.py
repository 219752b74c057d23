"""Approvals of Strands Agents: interrupts of HumanInTheLoop, or of tools and hooks."""

from collections.abc import Mapping
from typing import Any

from strands.hooks import AfterToolCallEvent


def answers(other: Mapping[str, Any], reasons: Mapping[str, str | None]) -> list[Any]:
    """Return what a paused agent is given to go on: an interrupt's id has that of its call."""
    return [
        {"interruptResponse": {"interruptId": interrupt, "response": "no" if reason else "yes"}}
        for interrupt in other["interrupt_state"]["interrupts"]
        for id, reason in reasons.items()
        if f":{id}:" in interrupt
    ]


def prepare(reasons: Mapping[str, str | None], options: dict[str, Any]) -> None:
    """Make the reasons of a person the results of denied calls."""

    def explain(event: AfterToolCallEvent) -> None:
        reason = reasons.get(event.tool_use["toolUseId"])
        if reason and event.cancel_message:
            event.result["content"] = [{"text": f"Denied by a person: {reason}"}]

    if reasons:
        options.setdefault("hooks", []).append(explain)
