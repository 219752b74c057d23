"""Approvals of pending tool calls, as a capability."""

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
    escape_invisible,
    is_blank,
    well_formed,
)
from ..sessions.sessions import Session, Snapshot, Stage, WaitingTurn
from . import adapter
from .session import Answers, begin, hold, waiting_in
from .settings import ApprovalSettings

NO_REASON = "no reason given"
SHORT = 200  # maximum characters of arguments on the line of the question
FORM = 'Send {"approve": ["id", ...], "deny": [{"id": "...", "reason": "..."}, ...]}.'


class Approval(Capability):
    """Stores pending turns and resumes them in any process that can load the session."""

    settings: ApprovalSettings

    async def begin_turn(self, session: Session, turn: Turn) -> Stage | TurnResult | None:
        return await begin(session, turn)

    async def hold_turn(self, stage: Stage, snapshot: Snapshot) -> TurnResult | None:
        return await hold(stage, snapshot, self.settings.waiting_seconds)

    def find_waiting(self, session: Session) -> WaitingTurn | None:
        return waiting_in(session)

    def read(self, body: Mapping[str, Json], session_id: str) -> TurnRequest | None:
        """Return the request that resumes the turn with these answers. Raises `invalid_request`."""
        if not body.keys() & {"approve", "deny"}:
            return None
        approved = body.get("approve", [])
        denied = body.get("deny", [])
        is_alone = body.keys().isdisjoint({"prompt", "replace_turn"})
        if not isinstance(approved, list) or not isinstance(denied, list) or not is_alone:
            raise AgentError("invalid_request", FORM)
        answers = [(id, None) for id in approved] + [_read_denial(denial) for denial in denied]
        reasons = dict(answers) if all(isinstance(id, str) for id, _ in answers) else {}
        if len(reasons) < len(answers) or not answers:
            raise AgentError("invalid_request", f"{FORM} Name each call once.")
        return Answers(session_id, "", reasons=reasons)

    def ask(
        self, result: TurnResult, request: TurnRequest, read: Callable[[str], str | None]
    ) -> TurnRequest | None:
        """Ask for each call: y approves; any other text denies, with the text as the reason."""
        if result.marks.get("dropped"):
            click.echo("The pending turn was dropped.")
        reasons: dict[str, str | None] = {}
        for call in result.waiting:
            answer = read(_question(call.name, call.input))
            if answer is None:  # the conversation ends: the turn stays pending
                return None
            word = answer.strip().lower()
            reason = NO_REASON if word in {"", "n", "no"} else answer
            reasons[call.id] = None if word in {"y", "yes"} else reason
        if not reasons:
            return None
        return Answers(request.session_id, "", actor=request.actor, reasons=reasons)

    def prepare(self, turn: Turn, options: dict[str, Any]) -> None:
        """Make calls pending."""
        adapter.prepare(options)


def _question(tool: str, values: Any) -> str:
    """Return the question for a call. Arguments cannot imitate its lines."""
    name = escape_invisible(tool)
    arguments = escape_invisible(json.dumps(values, ensure_ascii=False, separators=(",", ":")))
    if len(arguments) <= SHORT:
        return f"Run {name} {arguments}? [y/N/reason] "
    # A long text could end in a forged question, so the last line names the tool again.
    question = f"Run {name} with these {len(arguments):,} characters? [y/N/reason] "
    return f"Run {name} {arguments}\n{question}"


def _read_denial(denial: Any) -> tuple[Any, str]:
    reason = denial.get("reason", "") if isinstance(denial, dict) else None
    if not isinstance(reason, str):
        raise AgentError("invalid_request", FORM)
    return denial.get("id"), NO_REASON if is_blank(reason) else well_formed(reason)
