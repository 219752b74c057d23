"""Tool calls that wait for a person, as a capability."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import click

from ..capability import Capability
from ..contract import (
    AgentError,
    Json,
    Turn,
    TurnRequest,
    TurnResult,
    is_blank,
    visible,
    well_formed,
)
from ..sessions.sessions import Session, Snapshot, Stage, WaitingTurn
from . import adapter
from .session import Answers, begin, hold, waiting_in
from .settings import ApprovalSettings

NO_REASON = "no reason given"
SHORT = 200  # characters of arguments that are in one line with the question
FORM = 'Send {"approve": ["id", ...], "deny": [{"id": "...", "reason": "..."}, ...]}.'


class Approval(Capability):
    """Lets turns wait for a person, and go on in any process that has the session."""

    settings: ApprovalSettings

    async def begin_turn(self, session: Session, turn: Turn) -> Stage | TurnResult | None:
        return await begin(session, turn)

    async def hold_turn(self, stage: Stage, snapshot: Snapshot) -> TurnResult | None:
        return await hold(stage, snapshot, self.settings.waiting_seconds)

    def find_waiting(self, session: Session) -> WaitingTurn | None:
        return waiting_in(session)

    def read(self, body: Mapping[str, Json], session_id: str) -> TurnRequest | None:
        """Return the turn that goes on with these answers. Raises `invalid_request`."""
        if not body.keys() & {"approve", "deny"}:
            return None
        approved, denied = body.get("approve", []), body.get("deny", [])
        is_alone = body.keys().isdisjoint({"prompt", "replace_turn"})
        if not isinstance(approved, list) or not isinstance(denied, list) or not is_alone:
            raise AgentError("invalid_request", FORM)
        given = [(id, None) for id in approved] + [_read_denial(denial) for denial in denied]
        reasons = dict(given) if all(isinstance(id, str) for id, _ in given) else {}
        if len(reasons) < len(given) or not given:
            raise AgentError("invalid_request", f"{FORM} Name each call once.")
        return Answers(session_id, "", reasons=reasons)

    def ask(
        self, result: TurnResult, request: TurnRequest, read: Callable[[str], str | None]
    ) -> TurnRequest | None:
        """Ask whether each call may run: y approves, anything else is why it may not."""
        if result.marks.get("dropped"):
            click.echo("The pending turn was dropped.")
        reasons: dict[str, str | None] = {}
        for call in result.waiting:
            answer = read(_question(call.name, call.input))
            if answer is None:  # the end of the conversation: the turn goes on waiting
                return None
            said = answer.strip().lower()
            reason = NO_REASON if said in {"", "n", "no"} else answer
            reasons[call.id] = None if said in {"y", "yes"} else reason
        if not reasons:
            return None
        return Answers(request.session_id, "", actor=request.actor, reasons=reasons)

    def prepare(self, turn: Turn, options: dict[str, Any]) -> None:
        """Let calls wait, and go on with those that are answered."""
        request = turn.request
        reasons = request.reasons_by_call if isinstance(request, Answers) else {}
        adapter.prepare(reasons, options)


def _question(tool: str, given: Any) -> str:
    """Return the question whether a call may run; no argument can look like a line of it."""
    name = visible(tool)
    shown = visible(json.dumps(given, ensure_ascii=False, separators=(",", ":")))
    if len(shown) <= SHORT:
        return f"Run {name} {shown}? [y/N/reason] "
    # The end of a long text could be made up as a question, so the tool is named again.
    return f"Run {name} {shown}\nRun {name} with these {len(shown):,} characters? [y/N/reason] "


def _read_denial(denial: Any) -> tuple[Any, str]:
    reason = denial.get("reason", "") if isinstance(denial, dict) else None
    if not isinstance(reason, str):
        raise AgentError("invalid_request", FORM)
    return denial.get("id"), NO_REASON if is_blank(reason) else well_formed(reason)
