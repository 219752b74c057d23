"""Faults in how Python renders take back, copy and hold turns: random schedules find them."""

from tests.mutation.fault import Fault
from tests.mutation.python import CONTRACT, SESSIONS

APPROVAL = "src/my_agent/harness/approval/session.py"
ADAPTER = "src/my_agent/harness/approval/adapter.py"
STAYS = 'messages = self.data["messages"][: self.turns[end]["at"]]\n'
CLAIM = "            await self._claim(waiting)\n"
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
        SESSIONS,
        STAYS,
        'messages = self.data["messages"]\n',
    ),
    Fault(
        "what came after the replaced turn stays",
        SESSIONS,
        STAYS,
        'ends = [*(start["at"] for start in self.turns), 10**9]\n'
        '            held = self.data["messages"]\n'
        "            messages = held[: ends[end]] + held[ends[end + 1] :]\n",
    ),
    Fault(
        "a failed replacement cuts the session",
        SESSIONS,
        "        self.cut(end)\n",
        "        last = self.cut(end)\n"
        "        if turn.replaces is not None:\n"
        "            await self.save(dict(self.snapshot or {}, data=self.data), last)\n"
        "            self._stored = await self._sessions.store.load(self._id)\n",
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
        SESSIONS,
        '{**turn, "at": turn["at"] - at}',
        "turn",
    ),
    Fault(
        "a turn that was taken back is replayed",
        SESSIONS,
        'self._last_turn(number, None, "", self.turns)',
        'self._last_turn(number, self.last["key"] if self.last else None, "", self.turns)',
    ),
    Fault(
        "current_turn is that of another turn",
        CONTRACT,
        'RUNNING: ContextVar[Turn] = ContextVar("RUNNING")\n',
        GLOBAL,
    ),
    Fault(
        "a waiting turn is committed",
        APPROVAL,
        "        if not turn.waiting:\n",
        "        if not turn.waiting.clear():\n",
    ),
    Fault(
        "an answer of another actor is taken",
        APPROVAL,
        "super().__init__(sessions, id, actor, loaded)",
        'super().__init__(sessions, id, loaded[1]["app_data"]["actor"] if loaded[1] else actor, '
        "loaded)",
    ),
    Fault("an approval is taken twice", APPROVAL, CLAIM, "            pass\n"),
    Fault(
        "partial answers are taken",
        APPROVAL,
        "turn.reasons.keys() == {*ids}:",
        "{*ids} >= turn.reasons.keys():",
    ),
    Fault(
        "a waiting turn outlives WAITING_SECONDS",
        APPROVAL,
        "waiting if time.time() < waiting.until else None",
        "waiting",
    ),
    Fault(
        "a new prompt keeps what waits",
        APPROVAL,
        'cast(Kept, last)["dropped"] = True\n',
        "cast(Kept, last).update(dropped=True, pending=self.waiting)\n",
    ),
    Fault(
        "a reply does not say that it dropped a turn",
        APPROVAL,
        "self._drops = waiting is not None",
        "self._drops = False",
    ),
    Fault(
        "what a turn said before it waited is lost",
        APPROVAL,
        "turn.texts, turn.answers = [waiting.reply], ",
        "turn.texts, turn.answers = [], ",
    ),
    Fault(
        "a repeated prompt drops the turn that waits for it",
        APPROVAL,
        "key in {waiting.key, waiting.prompt_key}:",
        "key in {}:",
    ),
    Fault(
        "a prompt that is repeated after its approvals runs again",
        APPROVAL,
        'self.start["key"], turn.key = waiting.prompt_key, key',
        'self.start["key"], turn.key = key, key',
    ),
    Fault(
        "a turn that waits takes the place of the one that it replaces",
        APPROVAL,
        "            before, last = self._committed()\n",
        "            before, last = self._committed()\n"
        '            before, cut = before | {"data": self.data}, self.cut(len(self.turns))\n'
        '            last.update(turn=cut["turn"], turns=cut["turns"])\n',
    ),
]

STRANDS = [
    Fault("a denied call runs", ADAPTER, '"no" if reasons[id] else "yes"', '"yes"'),
    Fault(
        "the state of the agent is not taken back",
        SESSIONS,
        "self.data = next(others, self.data) |",
        "self.data = self.data |",
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
