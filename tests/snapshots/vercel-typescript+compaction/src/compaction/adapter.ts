// Messages of the AI SDK as a summary needs them, and a call of its models.

import { type LanguageModel, type ModelMessage, RetryError, streamText } from 'ai'

import type { Answer, Said } from './summary.ts'

/** Yield what stored messages say. */
export function* read(messages: unknown[]): Generator<Said> {
  for (const { role, content } of messages as ModelMessage[]) {
    for (const part of typeof content === 'string' ? [content] : content) {
      if (typeof part === 'string') {
        yield [role, part]
      } else if (part.type === 'text') {
        yield [role, part.text]
      } else if (part.type === 'tool-call') {
        yield [role, { id: part.toolCallId, name: part.toolName, input: part.input }]
      } else if (part.type === 'tool-result') {
        const { toolCallId: id, output } = part
        const value = 'value' in output ? output.value : (output.reason ?? '')
        const text = typeof value === 'string' ? value : JSON.stringify(value)
        yield [role, { id, text, isError: output.type.startsWith('error') }]
      }
    }
  }
}

/** Return texts as stored messages. */
export function write(texts: ['user' | 'assistant', string][]): unknown[] {
  return texts.map(([role, content]) => ({ role, content }))
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
