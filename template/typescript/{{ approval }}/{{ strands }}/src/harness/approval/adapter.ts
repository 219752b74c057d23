// Approvals of Strands Agents: interrupts of HumanInTheLoop, or of tools and hooks.

import { InterruptResponseContent, TextBlock, ToolResultBlock } from '@strands-agents/sdk'

import { type Interrupted, interruptsOf } from '../turn.ts'

type Reasons = ReadonlyMap<string, string | null>
/** The framework's state of a pending turn, besides its messages. */
type Waiting = { readonly other: object }

/** Return the input that resumes a paused agent. */
export function answers({ other }: Waiting, reasons: Reasons): InterruptResponseContent[] {
  const { interrupts } = other as { interrupts: Interrupted }
  return [...reasons].flatMap(([id, reason]) => {
    const response = reason === null ? 'yes' : 'no'
    const ids = interruptsOf(interrupts, id)
    return ids.map((interruptId) => new InterruptResponseContent({ interruptId, response }))
  })
}

/**
 * Return the framework's state with a result for each denied call, which then never runs.
 *
 * The SDK calls no gate for a call with a result: the gate of a new deployment may let it run.
 */
export function withDenials({ other }: Waiting, reasons: Reasons): object {
  const { interrupts: state } = other as { interrupts: Interrupted }
  const pending = state.pendingToolExecution
  const denials = [...reasons].flatMap(([toolUseId, reason]) => {
    if (reason === null) return []
    const content = [new TextBlock(`Denied by a person: ${reason}`)]
    const result = new ToolResultBlock({ toolUseId, status: 'error', content })
    return [[toolUseId, result.toJSON()] as const]
  })
  // An older version stored calls that had run as pending: their results stay.
  const results = [...denials, ...Object.entries(pending.completedToolResults)]
  const completedToolResults = Object.fromEntries(results)
  const pendingToolExecution = { ...pending, completedToolResults }
  return { ...other, interrupts: { ...state, pendingToolExecution } }
}
