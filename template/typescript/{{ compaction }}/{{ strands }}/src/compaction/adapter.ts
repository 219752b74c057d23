// Messages of Strands Agents as a summary needs them, and a call of its models.

import { Message, type MessageData, type Model, TextBlock } from '@strands-agents/sdk'

import { toolsOf } from '../turn.ts'
import type { Answer, Said } from './summary.ts'

/** Yield what stored messages say. */
export function* read(messages: unknown[]): Generator<Said> {
  for (const stored of messages as MessageData[]) {
    const { role, content } = Message.fromJSON(stored)
    for (const block of content) {
      if (block.type === 'textBlock') yield [role, block.text]
      for (const chunk of toolsOf({ content: [block] })) yield [role, chunk]
    }
  }
}

/** Return texts as stored messages. */
export function write(texts: ['user' | 'assistant', string][]): unknown[] {
  return texts.map(([role, text]) => ({ role, content: [{ text }] }))
}

/** Return what a model without tools answers; read no more than `most` characters and a few. */
export async function ask(
  model: Model,
  instructions: string,
  text: string,
  most: number,
  stop: AbortSignal,
): Promise<Answer> {
  const answer: Answer = { text: '', isWhole: false, inputTokens: 0, outputTokens: 0 }
  const messages = [new Message({ role: 'user', content: [new TextBlock(text)] })]
  const options = { systemPrompt: instructions, cancelSignal: stop }
  for await (const event of model.stream(messages, options)) {
    stop.throwIfAborted()
    if (event.type === 'modelContentBlockDeltaEvent' && event.delta.type === 'textDelta') {
      answer.text += event.delta.text
    } else if (event.type === 'modelMessageStopEvent') {
      answer.isWhole = ['endTurn', 'stopSequence'].includes(event.stopReason)
    } else if (event.type === 'modelMetadataEvent' && event.usage) {
      const { inputTokens, outputTokens } = event.usage
      Object.assign(answer, { inputTokens, outputTokens })
    }
    if (answer.text.length > most) break
  }
  return answer
}
