// Approvals of Strands Agents: interrupts of HumanInTheLoop, or of tools and hooks.

import { AfterToolCallEvent, InterruptResponseContent } from '@strands-agents/sdk'
import { type LocalAgent, type Plugin, TextBlock, ToolResultBlock } from '@strands-agents/sdk'

import type { Options } from '../capability.ts'
import type { Waiting } from './session.ts'

type Reasons = ReadonlyMap<string, string | null>

/** Return what a paused agent is given to go on: an interrupt's id has that of its call. */
export function answers({ other }: Waiting, reasons: Reasons): InterruptResponseContent[] {
  const { interrupts } = other as { interrupts: { interrupts: object } }
  return Object.keys(interrupts.interrupts).flatMap((interruptId) => {
    const answered = [...reasons].find(([id]) => interruptId.includes(`:${id}:`))
    const response = answered?.[1] === null ? 'yes' : 'no'
    return answered ? [new InterruptResponseContent({ interruptId, response })] : []
  })
}

/** Make the reasons of a person the results of denied calls. */
export function prepare(reasons: Reasons, options: Options): void {
  const left = new Map(reasons)
  const plugin: Plugin = {
    name: 'denials',
    initAgent(agent: LocalAgent) {
      agent.addHook(AfterToolCallEvent, (event) => {
        const { toolUseId, status } = event.result
        const reason = left.get(toolUseId)
        left.delete(toolUseId) // models number calls: a later one may have the same id
        if (!reason) return
        const content = [new TextBlock(`Denied by a person: ${reason}`)]
        event.result = new ToolResultBlock({ toolUseId, status, content })
      })
    },
  }
  options.plugins = [...((options.plugins as Plugin[] | undefined) ?? []), plugin]
}
