"""Faults in how Python renders take back, copy and hold turns: random schedules find them."""

from tests.mutation.fault import Fault
from tests.mutation.python import CONTRACT, SESSIONS

APPROVAL = "src/my_agent/harness/approval/session.py"
ADAPTER = "src/my_agent/harness/approval/adapter.py"
GLOBAL = """class Running:
    def set(self, turn: Turn) -> None:
        self.turn = turn

    def get(self, _: Any = None) -> Turn:
        return self.turn

    def reset(self, _: Any) -> None:
        pass


RUNNING: Any = Running()
"""

FAULTS = [
    Fault(
        "a replaced turn stays in the history",
        "src/my_agent/harness/sessions/sessions.py",
        '            self.history = self.history[: dropped[0]["at"]]\n',
        "            pass\n",
    ),
    Fault(
        "what came after the replaced turn stays",
        "src/my_agent/harness/sessions/sessions.py",
        '            self.history = self.history[: dropped[0]["at"]]\n',
        (
            '            self.history = self.history[: dropped[0]["at"]]\n'
            "            if len(dropped) > 1:\n"
            '                self.history += session.data["messages"][dropped[1]["at"] :]\n'
        ),
    ),
    Fault(
        "a failed replacement cuts the session",
        "src/my_agent/harness/sessions/sessions.py",
        "        turn.has_begun = True\n",
        (
            "        turn.has_begun = True\n"
            "        if turn.request.replaces is not None:\n"
            "            await self.claim(dict(self.snapshot or {}, data=stage.data), "
            "stage.last_turn())\n"
        ),
    ),
    Fault(
        "the number of a replaced turn is not checked",
        SESSIONS,
        "if not self.turns or not first <= number <= self.number:",
        "if not self.turns:",
    ),
    Fault("a fork overwrites an existing session", SESSIONS, "if copy.last:", "if False:"),
    Fault("a fork takes all turns", SESSIONS, "find(change.turns) + 1)", "find(0) + 1)"),
    Fault(
        "history trimming forgets where turns begin",
        "src/my_agent/harness/sessions/sessions.py",
        '{**turn, "at": turn["at"] - start + to}',
        "turn",
    ),
    Fault(
        "a turn that was taken back is replayed",
        "src/my_agent/harness/sessions/sessions.py",
        "earlier.last_turn())",
        'earlier.last_turn(self.last["key"] if self.last else None))',
    ),
    Fault(
        "current_turn is that of another turn",
        CONTRACT,
        'RUNNING: ContextVar[Turn] = ContextVar("RUNNING")\n',
        GLOBAL,
    ),
    Fault(
        "a waiting turn is committed",
        "src/my_agent/harness/sessions/sessions.py",
        "        if turn.waiting:\n",
        "        if turn.waiting.clear():\n",
    ),
    Fault(
        "an answer of another actor is taken",
        "src/my_agent/harness/sessions/sessions.py",
        'if self.last and self.last["actor"] != actor and not',
        'if self.last and self.last["actor"] != actor and "pending" not in self.last and not',
    ),
    Fault(
        "an approval is taken twice",
        "src/my_agent/harness/approval/session.py",
        "        await _claim(session, waiting)\n",
        "        pass\n",
    ),
    Fault(
        "partial answers are taken",
        "src/my_agent/harness/approval/session.py",
        "answers.reasons.keys() == {*ids}:",
        "{*ids} >= answers.reasons.keys():",
    ),
    Fault(
        "a waiting turn outlives WAITING_SECONDS",
        APPROVAL,
        "waiting if time.time() < waiting.until else None",
        "waiting",
    ),
    Fault(
        "a new prompt keeps what waits",
        "src/my_agent/harness/sessions/sessions.py",
        ("        last = LastTurn(**self.last_turn(turn.key, turn.reply), **self.marks)\n"),
        (
            '        kept = {"pending": (session.last or {}).get("pending")}\n'
            "        last = LastTurn(**self.last_turn(turn.key, turn.reply), **self.marks, "
            "**kept)\n"
        ),
    ),
    Fault(
        "a reply does not say that it dropped a turn",
        "src/my_agent/harness/approval/session.py",
        '    stage.marks["dropped"] = True\n',
        "",
    ),
    Fault(
        "what a turn said before it waited is lost",
        "src/my_agent/harness/approval/session.py",
        "    turn.texts = [waiting.reply]\n",
        "    turn.texts = []\n",
    ),
    Fault(
        "a repeated prompt drops the turn that waits for it",
        APPROVAL,
        "key in {waiting.key, waiting.prompt_key}:",
        "key in {}:",
    ),
    Fault(
        "a prompt that is repeated after its approvals runs again",
        "src/my_agent/harness/approval/session.py",
        "stage.key = waiting.prompt_key",
        "stage.key = turn.key",
    ),
    Fault(
        "a turn that waits takes the place of the one that it replaces",
        "src/my_agent/harness/approval/session.py",
        "        before, last = _committed(session)\n    else:",
        (
            "        before, last = _committed(session)\n"
            '        before = before | {"data": stage.data}\n'
            "        last.update(turn=stage.number, turns=stage.turns)\n"
            "    else:"
        ),
    ),
]

STRANDS = [
    Fault(
        "a denied call runs",
        APPROVAL,
        "    reasons = answers.reasons_by_call\n",
        "    reasons = dict.fromkeys(answers.reasons_by_call)\n",
    ),
    Fault(
        "the state of the agent is not taken back",
        "src/my_agent/harness/sessions/sessions.py",
        "next(others, without_messages(session.data))",
        "without_messages(session.data)",
    ),
]
VERCEL = [
    Fault("a denied call runs", ADAPTER, '"granted": reason is None', '"granted": True'),
    Fault(
        "a call that ran before the wait runs again",
        ADAPTER,
        "call.cached_result = result.results[0] if waiting else None",
        "call.cached_result = None",
    ),
]
