// Messages of the AI SDK as a summary needs them.

import type { ModelMessage, ToolResultPart } from 'ai'

import type { Said } from './summary.ts'

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
        const isError = /^(error|execution-denied)/.test(output.type)
        yield [role, { id, text: textOf(output), isError }]
      }
    }
  }
}

/** Return the output of a tool as text; of a file its kind, as in `[image]`. */
function textOf(output: ToolResultPart['output']): string {
  if (output.type === 'content') {
    const texts = output.value.map((part) => {
      if (part.type === 'text') return part.text
      return `[${('mediaType' in part ? part.mediaType : part.type).split(/[/-]/)[0]}]`
    })
    return texts.join('\n')
  }
  const value = 'value' in output ? output.value : (output.reason ?? '')
  return typeof value === 'string' ? value : JSON.stringify(value)
}

/** Return texts as stored messages. */
export function write(texts: ['user' | 'assistant', string][]): unknown[] {
  return texts.map(([role, content]) => ({ role, content }))
}
