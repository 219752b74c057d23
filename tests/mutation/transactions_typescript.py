"""Faults in how TypeScript renders take back, copy and hold turns: random schedules find them."""

from tests.mutation.fault import Fault
from tests.mutation.typescript import CONTRACT, SESSIONS

APPROVAL = "src/harness/approval/waiting.ts"
ADAPTER = "src/harness/approval/adapter.ts"
STAYS = "const messages = this.data.messages.slice(0, next.at)\n"
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
        "const messages = this.data.messages.slice(0, next.at)\n"
        "    messages.push(...this.data.messages.slice(later[0]?.at ?? 1e9))\n",
    ),
    Fault(
        "a failed replacement cuts the session",
        SESSIONS,
        "    turn.hasBegun = true\n",
        "    if (turn.request.replaces !== null && this.snapshot) {\n"
        "      const { data, turns } = stage\n"
        "      const last = { ...stage.lastTurn(turns), key: null, turn: turn.number - 1 }\n"
        "      await this.claim({ ...this.snapshot, data }, last)\n"
        "    }\n"
        "    turn.hasBegun = true\n",
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
        "({ ...start, at: start.at - end + length })",
        "start",
    ),
    Fault(
        "a turn that was taken back is replayed",
        SESSIONS,
        "{ actor: this.actor, turn, key: null, reply",
        "{ actor: this.actor, turn, key: this.last?.key ?? null, reply",
    ),
    Fault(
        "current_turn is that of another turn",
        CONTRACT,
        "export const RUNNING = new AsyncLocalStorage<Turn>()\n",
        GLOBAL,
    ),
    Fault(
        "a waiting turn is committed",
        SESSIONS,
        "if (call) return this.#hold(call.name, snapshot)",
        "if (call) turn.waiting = []",
    ),
    Fault(
        "an answer of another actor is taken",
        SESSIONS,
        "if (this.last && this.last.actor !== actor &&",
        "if (this.last && this.last.actor !== actor && !('pending' in this.last) &&",
    ),
    Fault(
        "an approval is taken twice",
        APPROVAL,
        "await claim(stage, waiting)",
        "await Promise.resolve()",
    ),
    Fault(
        "partial answers are taken",
        APPROVAL,
        "left.size === right.size && [...left].every((id) => right.has(id))",
        "[...right].every((id) => left.has(id))",
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
        "  stage.marks.add('dropped')\n",
        "  stage.marks.add('dropped')\n"
        "  Object.assign(stage, { lastTurn: (turns: never) => Object.assign("
        "Object.getPrototypeOf(stage).lastTurn.call(stage, turns), { pending: waiting }) })\n",
    ),
    Fault(
        "a reply does not say that it dropped a turn",
        APPROVAL,
        "  stage.marks.add('dropped')\n",
        "",
    ),
    Fault(
        "what a turn said before it waited is lost",
        APPROVAL,
        "  turn.reply = waiting.reply\n  turn.kept",
        "  turn.kept",
    ),
    Fault(
        "a repeated prompt drops the turn that waits for it",
        APPROVAL,
        "[waiting.key, waiting.prompt_key].includes(key)",
        "waiting.key === ''",
    ),
    Fault(
        "a prompt that is repeated after its approvals runs again",
        APPROVAL,
        "stage.key = waiting.prompt_key",
        "stage.key = turn.key",
    ),
    Fault(
        "a turn that waits takes the place of the one that it replaces",
        APPROVAL,
        "  await session.save(before, record)\n",
        "  before.data = { ...stage.data, messages: stage.data.messages.slice(0, stage.at) }\n"
        "  Object.assign(record, { turns: stage.turns, turn: turn.number - 1 })\n"
        "  await session.save(before, record)\n",
    ),
]

STRANDS = [
    Fault(
        "a denied call runs",
        APPROVAL,
        "id.lastIndexOf('.')), reason)",
        "id.lastIndexOf('.')), null)",
    ),
    Fault(
        "the state of the agent is not taken back",
        SESSIONS,
        "...(change?.other ?? this.data), messages",
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
