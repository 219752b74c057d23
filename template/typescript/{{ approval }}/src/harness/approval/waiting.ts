// Pending turns, stored in the session's record beside its committed turns.

import { randomUUID } from 'node:crypto'

import { LRUCache } from 'lru-cache'
import { z } from 'zod'

import { AgentError, type ToolCall, type TurnFields, TurnRequest } from '../contract.ts'
import type { Turn, TurnResult } from '../contract.ts'
import { type LastTurn, serialize, type Session } from '../sessions/sessions.ts'
import type { FrameworkSnapshot, Stage } from '../sessions/sessions.ts'
import * as adapter from './adapter.ts'

export type Reasons = ReadonlyMap<string, string | null>

/** A request that resumes a turn. Reason null approves a call; any other reason denies it. */
export class Answers extends TurnRequest {
  readonly reasons: Reasons

  constructor(fields: Omit<TurnFields, 'prompt'>, reasons: Reasons) {
    super({ ...fields, prompt: '' })
    this.reasons = reasons
  }

  override get hasPrompt(): boolean {
    return false
  }
}

/** A pending turn. */
const WAITING = z.object({
  turn: z.int(),
  key: z.string().nullable(), // the key of the last request
  prompt_key: z.string().nullable(), // the key of the first request
  prompt: z.string(),
  reply: z.string(), // the reply so far
  // Ids end with a unique suffix: models reuse ids, but an answer applies to one approval only.
  calls: z.array(z.object({ id: z.string(), tool: z.string(), input: z.unknown() })),
  until: z.int(), // Unix time in seconds
  messages: z.array(z.unknown()), // the messages of the turn
  kept: z.record(z.string(), z.unknown()).optional().catch({}), // data of capabilities
  other: z.looseObject({}), // the framework's remaining state
})
export type Waiting = z.infer<typeof WAITING>

/** The `app_data` of a snapshot, with the pending turn. */
type PendingData = LastTurn & { pending?: Waiting | undefined; claim?: string | undefined }

/**
 * Turns that this process may have claimed, by session and claim: at most 8 Mi characters of JSON.
 */
const CLAIMS = new LRUCache<string, Waiting>({
  maxSize: 8 * 1024 * 1024,
  sizeCalculation: (waiting) => JSON.stringify(waiting).length,
})

/** Return the pending turn, or a turn that this process may have claimed. */
export function findWaiting({ id, last }: Session): Waiting | undefined {
  const { pending, claim } = Object(last) as Partial<PendingData>
  const pendingTurn = WAITING.safeParse(pending).data
  const waiting = pendingTurn ?? CLAIMS.get(`${id} ${claim}`)
  return waiting && Date.now() / 1000 < waiting.until ? waiting : undefined
}

/**
 * Begin a turn and drop the pending turn, or resume the pending turn.
 *
 * Throws AgentError `not_waiting` unless the answers match the pending calls.
 */
export async function begin(session: Session, turn: Turn): Promise<Stage | TurnResult | undefined> {
  const waiting = findWaiting(session)
  const { request, key } = turn
  const ids = waiting?.calls.map(({ id }) => id) ?? []
  const isAnswer = request instanceof Answers
  if (waiting && isAnswer && isEqual(new Set(ids), new Set(request.reasons.keys()))) {
    return resume(session, turn, waiting, request.reasons)
  }
  if (!waiting && !isAnswer) return undefined
  const repeated = session.findRepeated(turn)
  if (repeated) return repeated
  const isRepeat = waiting && [waiting.key, waiting.prompt_key].includes(key)
  if (isRepeat && request.isRepeatable) {
    turn.number = waiting.turn
    turn.reply = waiting.reply
    turn.waiting = callsOf(waiting)
    return turn.result('replayed', session.stored?.isRolledBack ? ['rolled_back'] : [])
  }
  if (isAnswer) {
    const detail = `These tool calls are pending; answer all of them: ${ids.join(', ')}.`
    throw new AgentError('not_waiting', waiting ? detail : '')
  }
  const stage = await session.stage(turn, request.follow(session))
  stage.marks.add('dropped')
  return stage
}

async function resume(
  session: Session,
  turn: Turn,
  waiting: Waiting,
  reasons: Reasons,
): Promise<Stage> {
  const isReplacing = waiting.turn <= session.number
  turn.prompt = waiting.prompt
  turn.key ??= waiting.key
  const end = isReplacing ? session.find(waiting.turn) : session.turns.length
  const stage = await session.stage(turn, end)
  stage.key = waiting.prompt_key
  if ([...reasons.values()].includes(null)) {
    // Start no stream before the claim is saved: the store may still reject it.
    turn.hasBegun = false
    await claim(stage, waiting)
    turn.hasBegun = true
  }
  turn.reply = waiting.reply
  turn.kept = waiting.kept ?? {}
  stage.answers = adapter.answers(waiting, byCall(reasons))
  const other = adapter.withDenials(waiting, byCall(reasons))
  stage.data = { ...other, messages: [...stage.data.messages, ...waiting.messages] }
  return stage
}

/** Return reasons by the model's call ids, without the suffix of the approval. */
function byCall(reasons: Reasons): Reasons {
  const byId = new Map<string, string | null>()
  for (const [id, reason] of reasons) byId.set(id.slice(0, id.lastIndexOf('.')), reason)
  return byId
}

/**
 * Remove the turn from the record before a tool runs, so that it runs at most once.
 *
 * Throws AgentError: `not_waiting` if the session has ended, `session_conflict` if it changed,
 * or an error of the store. Throws the reason of the turn's signal if it is aborted.
 */
async function claim({ session, turn }: Stage, waiting: Waiting): Promise<void> {
  turn.signal.throwIfAborted()
  const { id } = session
  const { pending, claim: earlier } = session.last as PendingData
  if (!pending) {
    CLAIMS.delete(`${id} ${earlier}`) // this process has claimed it
    return
  }
  const [taken, last] = committedOf(session)
  // A unique id distinguishes this claim from claims of other processes.
  const claimId = randomUUID()
  let claimed
  try {
    claimed = await session.claim(taken, { ...last, claim: claimId } as LastTurn)
    turn.signal.throwIfAborted()
  } catch (error) {
    // The claim may be saved, now or later, but no tool has run: the next approval continues.
    CLAIMS.set(`${id} ${claimId}`, waiting)
    throw error
  }
  if (claimed === null) throw new AgentError('not_waiting')
  const { claim: storedClaim } = claimed.app_data as PendingData
  if (storedClaim !== claimId) throw new AgentError('session_conflict')
}

/** Return the committed snapshot and data, without the pending turn and its claim. */
function committedOf({ snapshot }: Session): [FrameworkSnapshot, PendingData] {
  const { app_data: last, ...taken } = snapshot!
  return [taken, { ...last, pending: undefined, claim: undefined }]
}

/** Store a pending turn beside the committed turns, for `seconds`. */
export async function wait(
  stage: Stage,
  taken: FrameworkSnapshot,
  seconds: number,
): Promise<TurnResult> {
  const { session, turn } = stage
  const { number, key, prompt, reply, kept } = turn
  if (new Set(turn.waiting.map(({ id }) => id)).size < turn.waiting.length) {
    // One answer would apply to both calls.
    throw new AgentError('model_failed', '', 'two pending tool calls have the same id')
  }
  const { messages, ...other } = taken.data
  const suffix = randomUUID().slice(0, 8)
  const calls = turn.waiting.map(({ id, name: tool, input }) => {
    return { id: `${id}.${suffix}`, tool, input }
  })
  const waiting: Waiting = {
    turn: number,
    key,
    prompt_key: stage.key,
    prompt,
    reply,
    calls,
    until: Math.floor(Date.now() / 1000) + seconds,
    messages: messages.slice(stage.at),
    kept,
    other,
  }
  const none = { actor: session.actor, turn: 0, key: null, reply: '', turns: [] }
  const empty: [FrameworkSnapshot, PendingData] = [{ ...taken, data: { messages: [] } }, none]
  const [before, last] = session.last ? committedOf(session) : empty
  const record: PendingData = { ...last, pending: waiting }
  // Throw instead of dropping older turns to make room for the pending turn.
  session.checkSize(serialize({ ...before, app_data: record }))
  await session.save(before, record)
  turn.waiting = callsOf(waiting)
  return turn.result('waiting', [...stage.marks])
}

/** Return the pending calls, by the ids of their approvals. */
function callsOf({ calls }: Waiting): ToolCall[] {
  return calls.map(({ id, tool: name, input }) => ({ id, name, input }))
}

function isEqual(left: Set<string>, right: Set<string>): boolean {
  return left.size === right.size && [...left].every((id) => right.has(id))
}
