// Approvals of Strands Agents: interrupts of HumanInTheLoop, or of tools and hooks.

import { AfterToolCallEvent, InterruptResponseContent } from '@strands-agents/sdk'
import { type LocalAgent, type Plugin, TextBlock, ToolResultBlock } from '@strands-agents/sdk'

import type { Options } from '../capability.ts'
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

/** Return the person's reasons to the model as results of denied calls. */
export function prepare(reasons: Reasons, options: Options): void {
  const remaining = new Map(reasons)
  const plugin: Plugin = {
    name: 'denials',
    initAgent(agent: LocalAgent) {
      agent.addHook(AfterToolCallEvent, (event) => {
        const { toolUseId, status } = event.result
        const reason = remaining.get(toolUseId)
        remaining.delete(toolUseId) // models may reuse an id for a later call
        if (!reason) return
        const content = [new TextBlock(`Denied by a person: ${reason}`)]
        event.result = new ToolResultBlock({ toolUseId, status, content })
      })
    },
  }
  options.plugins = [...((options.plugins as Plugin[] | undefined) ?? []), plugin]
}
