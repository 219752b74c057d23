// Asks a model outside a conversation.

import { Message, type Model, TextBlock } from '@strands-agents/sdk'

/** The answer of a model; 0 tokens means unknown. */
export interface Answer {
  text: string
  isWhole: boolean
  inputTokens: number
  outputTokens: number
}

/** Return the answer of a model without tools; stop reading above `maxChars` characters. */
export async function ask(
  model: Model,
  instructions: string,
  text: string,
  maxChars: number,
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
    if (answer.text.length > maxChars) break
  }
  return answer
}
