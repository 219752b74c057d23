"""Tool calls that wait for a person, as a capability."""

import json
from collections.abc import Callable
from typing import Any, cast

import click

from ..capability import Capability
from ..contract import AgentError, Turn, is_blank, visible, well_formed
from ..sessions.sessions import LastTurn, Session
from . import adapter
from .session import Answers, WaitingSession
from .settings import ApprovalSettings

NO_REASON = "no reason given"
SHORT = 200  # characters of arguments that are in one line with the question
FORM = 'Send {"approve": ["id", ...], "deny": [{"id": "...", "reason": "..."}, ...]}.'


class Approval(Capability):
    """Lets turns wait for a person, and go on in any process that has the session."""

    settings: ApprovalSettings

    def session_class(self) -> type[Session]:
        return WaitingSession

    def read(self, body: dict[str, Any], session_id: str) -> Turn | None:
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
        return Answers(session_id, None, None, "", reasons=reasons)

    def ask(self, last: LastTurn, turn: Turn, read: Callable[[str], str | None]) -> Turn | None:
        """Ask whether each call may run: y approves, anything else is why it may not."""
        if last.get("dropped"):
            click.echo("The turn that waited was dropped.")
        reasons: dict[str, str | None] = {}
        for call in cast(dict[str, Any], last).get("waiting", []):
            answer = read(_question(call["tool"], call["input"]))
            if answer is None:  # the end of the conversation: the turn goes on waiting
                return None
            said = answer.strip().lower()
            reason = NO_REASON if said in {"", "n", "no"} else answer
            reasons[call["id"]] = None if said in {"y", "yes"} else reason
        answers = Answers(turn.session_id, turn.actor, None, "", turn.emit, reasons=reasons)
        return answers if reasons else None

    def prepare(self, turn: Turn, options: dict[str, Any]) -> None:
        """Let calls wait, and go on with those that are answered."""
        adapter.prepare(turn.reasons if isinstance(turn, Answers) else {}, options)


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
