// Asks a model outside a conversation.

import { type LanguageModel, RetryError, streamText } from 'ai'

/** The answer of a model; 0 tokens means unknown. */
export interface Answer {
  text: string
  isWhole: boolean
  inputTokens: number
  outputTokens: number
}

/** Return the answer of a model without tools; stop reading above `maxChars` characters. */
export async function ask(
  model: LanguageModel,
  instructions: string,
  text: string,
  maxChars: number,
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
    if (answer.text.length > maxChars) break
  }
  return answer
}
