// A question to a model, outside of a conversation.

import { Message, type Model, TextBlock } from '@strands-agents/sdk'

/** What a model wrote, and whether it was finished; 0 tokens are unknown. */
export interface Answer {
  text: string
  isWhole: boolean
  inputTokens: number
  outputTokens: number
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
