"""Faults in how TypeScript renders take back, copy and hold turns: random schedules find them."""

from tests.mutation.fault import Fault
from tests.mutation.typescript import CONTRACT, SESSIONS

APPROVAL = "src/harness/approval/session.ts"
ADAPTER = "src/harness/approval/adapter.ts"
STAYS = "const messages = this.data.messages.slice(0, later[0].at)\n"
GLOBAL = """export const RUNNING = {
  turn: undefined as Turn | undefined,
  getStore() {
    return this.turn
  },
  run<T>(turn: Turn, work: () => T): T {
    this.turn = turn
    return work()
  },
}
"""

FAULTS = [
    Fault(
        "a replaced turn stays in the history",
        SESSIONS,
        STAYS,
        "const messages = this.data.messages\n",
    ),
    Fault(
        "what came after the replaced turn stays",
        SESSIONS,
        STAYS,
        "const messages = this.data.messages.slice(0, later[0].at)\n"
        "      messages.push(...this.data.messages.slice(later[1]?.at ?? 1e9))\n",
    ),
    Fault(
        "a failed replacement cuts the session",
        SESSIONS,
        "    this.cut(end)\n",
        "    const last = this.cut(end)\n"
        "    if (turn.replaces !== null && this.snapshot) {\n"
        "      await this.save({ ...this.snapshot, data: this.data }, last)\n"
        "      this.stored = await this.sessions.store.load(this.id)\n"
        "    }\n",
    ),
    Fault(
        "the number of a replaced turn is not checked",
        SESSIONS,
        "if (this.turns.length === 0 || number < first || number > this.number) {",
        "if (this.turns.length === 0) {",
    ),
    Fault("a fork overwrites an existing session", SESSIONS, "if (copy.last)", "if (false)"),
    Fault("a fork takes all turns", SESSIONS, "find(turns) + 1)", "find(0) + 1)"),
    Fault(
        "history trimming forgets where turns begin",
        SESSIONS,
        "({ ...turn, at: turn.at - start })",
        "turn",
    ),
    Fault(
        "a turn that was taken back is replayed",
        SESSIONS,
        "this.#lastTurn(turn, null, '', this.turns)",
        "this.#lastTurn(turn, this.last?.key ?? null, '', this.turns)",
    ),
    Fault(
        "current_turn is that of another turn",
        CONTRACT,
        "export const RUNNING = new AsyncLocalStorage<Turn>()\n",
        GLOBAL,
    ),
    Fault(
        "a waiting turn is committed",
        APPROVAL,
        "if (turn.waiting.length === 0) return",
        "if (turn.waiting.splice(0)) return",
    ),
    Fault(
        "an answer of another actor is taken",
        APPROVAL,
        "super(sessions, id, actor, loaded)",
        "super(sessions, id, loaded[1] ? loaded[1].app_data.actor : actor, loaded)",
    ),
    Fault(
        "an approval is taken twice",
        APPROVAL,
        "await this.#claim(waiting)",
        "await Promise.resolve()",
    ),
    Fault(
        "partial answers are taken",
        APPROVAL,
        "some.size === others.size && [...some].every((id) => others.has(id))",
        "[...others].every((id) => some.has(id))",
    ),
    Fault(
        "a waiting turn outlives WAITING_SECONDS",
        APPROVAL,
        "waiting && Date.now() / 1000 < waiting.until ? waiting : undefined",
        "waiting",
    ),
    Fault(
        "a new prompt keeps what waits",
        APPROVAL,
        "Object.assign(last, { dropped: true })",
        "Object.assign(last, { dropped: true, pending: this.waiting })",
    ),
    Fault(
        "a reply does not say that it dropped a turn",
        APPROVAL,
        "this.#drops = waiting !== undefined",
        "this.#drops = false",
    ),
    Fault("what a turn said before it waited is lost", APPROVAL, "reply: waiting.reply, a", "a"),
    Fault(
        "a repeated prompt drops the turn that waits for it",
        APPROVAL,
        "[waiting.key, waiting.prompt_key].includes(key)",
        "waiting.key === ''",
    ),
    Fault(
        "a prompt that is repeated after its approvals runs again",
        APPROVAL,
        "this.start.key = waiting.prompt_key",
        "this.start.key = key",
    ),
    Fault(
        "a turn that waits takes the place of the one that it replaces",
        APPROVAL,
        "    await super.save(before, kept)\n",
        "    before.data = this.data\n"
        "    Object.assign(kept, { turns: this.turns, turn: this.cut(this.turns.length).turn })\n"
        "    await super.save(before, kept)\n",
    ),
]

STRANDS = [
    Fault("a denied call runs", ADAPTER, "reason === null ? 'yes' : 'no'", "'yes'"),
    Fault(
        "the state of the agent is not taken back",
        SESSIONS,
        "...(later.find(({ other }) => other)?.other ?? this.data), messages",
        "...this.data, messages",
    ),
]
VERCEL = [
    Fault(
        "a denied call runs", ADAPTER, "    if (reason) answered.push", "    if (0) answered.push"
    ),
    Fault(
        "answers are looked for in the last message only",
        ADAPTER,
        "(messages as ModelMessage[]).flatMap(",
        "(messages.slice(-1) as ModelMessage[]).flatMap(",
    ),
]
