// Mends rejected requests with Strands: the SDK repeats the call with other messages.

import { AfterModelCallEvent, BeforeModelCallEvent, Message } from '@strands-agents/sdk'
import { ModelStreamUpdateEvent, TextBlock, ToolResultBlock } from '@strands-agents/sdk'
import type { Agent, MessageData, ModelStreamEvent } from '@strands-agents/sdk'

import { cutResult, type CuttableResult, lengthOf, type Shortening } from './context_length.ts'
import { mediaTypesIn } from '../file_parts.ts'
import { textIn } from '../messages.ts'
import type { AcceptedTypes } from './rejected_files.ts'

/** Repeat model calls that were rejected for their length or their files before any content. */
export function mendRequests(agent: Agent, shortening: Shortening, accepted: AcceptedTypes): void {
  let hasContent = false
  agent.addHook(BeforeModelCallEvent, () => {
    hasContent = false
  })
  agent.addHook(ModelStreamUpdateEvent, ({ event }) => {
    hasContent ||= isContent(event)
  })
  agent.addHook(AfterModelCallEvent, async (event) => {
    if (!event.error || hasContent) return
    if (accepted.reduce(event.error, mediaTypesIn(agent.messages))) {
      event.retry = true
      return
    }
    const { stage } = shortening
    const before = stage.at
    const results = resultsIn(agent.messages.slice(before))
    if (!(await shortening.shorten(event.error, results))) return
    replaceHistory(agent, before, stage.data.messages.slice(0, stage.at), stage.turns)
    event.retry = true
  })
}

/** Whether an event has text, reasoning or a tool call. */
export function isContent(event: ModelStreamEvent): boolean {
  if (event.type === 'modelContentBlockStartEvent') return event.start !== undefined
  if (event.type !== 'modelContentBlockDeltaEvent') return false
  return event.delta.type !== 'textDelta' || event.delta.text !== ''
}

/** Replace the first `before` messages by a history that ends with some of these turns. */
function replaceHistory(
  agent: Agent,
  before: number,
  history: unknown[],
  turns: readonly { at: number }[],
): void {
  const front = history.slice(0, turns[0]?.at ?? history.length) as MessageData[]
  const dropped = before - (history.length - front.length)
  agent.messages.splice(0, dropped, ...front.map((message) => Message.fromMessageData(message)))
}

/** Return the results in messages; `cut` changes the messages. */
function resultsIn(messages: Message[]): CuttableResult[] {
  return messages.flatMap(({ content }) =>
    content.flatMap((block, place): CuttableResult[] => {
      if (block.type !== 'toolResultBlock') return []
      const text = block.content.map(textIn).join('\n')
      const others = block.content.filter(({ type }) => !['textBlock', 'jsonBlock'].includes(type))
      const cut = (size: number) => {
        const { toolUseId, status } = block
        const parts = [new TextBlock(cutResult(text, size)), ...others]
        content[place] = new ToolResultBlock({ toolUseId, status, content: parts })
      }
      return [{ id: block.toolUseId, size: lengthOf(text), cut }]
    }),
  )
}
