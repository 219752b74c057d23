// Approvals of pending tool calls, as a capability.

import { Capability } from '../capability.ts'
import { AgentError, isBlank, type Turn, type TurnRequest, type TurnResult } from '../contract.ts'
import { escapeInvisible } from '../log.ts'
import type { Read } from '../modules.ts'
import type { FrameworkSnapshot, Session, Stage, WaitingTurn } from '../sessions/sessions.ts'
import type { CoreSettings, SettingsOf } from '../settings.ts'
import type { APPROVAL_SETTINGS } from './settings.ts'
import { Answers, begin, findWaiting, wait } from './waiting.ts'

const NO_REASON = 'no reason given'
const SHORT = 200 // maximum characters of arguments on the line of the question
const FORM = 'Send {"approve": ["id", ...], "deny": [{"id": "...", "reason": "..."}, ...]}.'

/** Stores pending turns and resumes them in any process that can load the session. */
export class Approval extends Capability<CoreSettings & SettingsOf<typeof APPROVAL_SETTINGS>> {
  override beginTurn(session: Session, turn: Turn): Promise<Stage | TurnResult | undefined> {
    return begin(session, turn)
  }

  override holdTurn(stage: Stage, taken: FrameworkSnapshot): Promise<TurnResult> {
    return wait(stage, taken, this.settings.waitingSeconds)
  }

  override findWaiting(session: Session): WaitingTurn | undefined {
    return findWaiting(session)
  }

  /** Return the request that resumes the turn with these answers. Throws `invalid_request`. */
  override read(body: object, sessionId: string): TurnRequest | undefined {
    if (!('approve' in body) && !('deny' in body)) return undefined
    const { approve = [], deny = [] } = body as Record<string, unknown>
    const isAlone = !('prompt' in body) && !('replace_turn' in body)
    if (!Array.isArray(approve) || !Array.isArray(deny) || !isAlone) {
      throw new AgentError('invalid_request', FORM)
    }
    const reasons = new Map<string, string | null>()
    for (const id of approve) if (typeof id === 'string') reasons.set(id, null)
    for (const [id, reason] of deny.map(readDenial)) reasons.set(id, reason)
    if (reasons.size < approve.length + deny.length || reasons.size === 0) {
      throw new AgentError('invalid_request', `${FORM} Name each call once.`)
    }
    return new Answers({ sessionId }, reasons)
  }

  /** Ask for each call: y approves; any other text denies, with the text as the reason. */
  override async ask(
    { sessionId, waiting, marks }: TurnResult,
    { actor }: TurnRequest,
    read: Read,
  ): Promise<TurnRequest | undefined> {
    if (marks.includes('dropped')) console.log('The pending turn was dropped.')
    const reasons = new Map<string, string | null>()
    for (const { id, name, input } of waiting) {
      const answer = await read(questionOf(name, input))
      if (answer === null) return undefined // the conversation ends: the turn stays pending
      const reason = /^\s*no?\s*$/i.test(answer) || isBlank(answer) ? NO_REASON : answer
      reasons.set(id, /^\s*y(es)?\s*$/i.test(answer) ? null : reason)
    }
    return reasons.size > 0 ? new Answers({ sessionId, actor }, reasons) : undefined
  }
}

/** Return the question for a call. Arguments cannot imitate its lines. */
function questionOf(tool: string, input: unknown): string {
  const name = escapeInvisible(tool)
  const args = escapeInvisible(JSON.stringify(input))
  const { length } = [...args]
  if (length <= SHORT) return `Run ${name} ${args}? [y/N/reason] `
  // A long text could end in a forged question, so the last line names the tool again.
  const size = length.toLocaleString('en-US')
  return `Run ${name} ${args}\nRun ${name} with these ${size} characters? [y/N/reason] `
}

function readDenial(denial: unknown): [string, string] {
  const { id, reason = '' } = Object(denial) as Record<string, unknown>
  if (typeof id !== 'string' || typeof reason !== 'string')
    throw new AgentError('invalid_request', FORM)
  return [id, isBlank(reason) ? NO_REASON : reason.toWellFormed()]
}
