// A question to a model, outside of a conversation.

import { type LanguageModel, RetryError, streamText } from 'ai'

/** What a model wrote, and whether it was finished; 0 tokens are unknown. */
export interface Answer {
  text: string
  isWhole: boolean
  inputTokens: number
  outputTokens: number
}

/** Return what a model without tools answers; read no more than `most` characters and a few. */
export async function ask(
  model: LanguageModel,
  instructions: string,
  text: string,
  most: number,
  stop: AbortSignal,
): Promise<Answer> {
  const answer: Answer = { text: '', isWhole: false, inputTokens: 0, outputTokens: 0 }
  const { stream } = streamText({
    model,
    instructions,
    prompt: text,
    maxRetries: 2, // only before the first chunk
    abortSignal: stop,
    onError: () => {}, // the default prints the error, which may quote a prompt
  })
  for await (const part of stream) {
    stop.throwIfAborted()
    if (part.type === 'error') {
      throw RetryError.isInstance(part.error) ? part.error.lastError : part.error
    }
    if (part.type === 'text-delta') answer.text += part.text
    if (part.type === 'finish-step') {
      answer.isWhole = part.finishReason === 'stop'
      answer.inputTokens = part.usage.inputTokens ?? 0
      answer.outputTokens = part.usage.outputTokens ?? 0
    }
    if (answer.text.length > most) break
  }
  return answer
}
