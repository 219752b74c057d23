// The built-in echo model: repeats prompts, and calls a tool on request.

import { type BaseModelConfig, type JSONSchema, type Message, Model } from '@strands-agents/sdk'
import type { ModelStreamEvent, StreamOptions, ToolResultBlock } from '@strands-agents/sdk'

import { mediaTypeOf } from './file_parts.ts'

/** The framework's type of a model. */
export type LanguageModel = Model

/** Repeats the conversation; the same conversation always gets the same reply. */
export class OfflineModel extends Model {
  /** There is nothing to configure. */
  updateConfig(): void {}

  getConfig(): BaseModelConfig {
    return { modelId: 'offline', contextWindowLimit: 1_000_000 }
  }

  async *stream(messages: Message[], options?: StreamOptions): AsyncIterable<ModelStreamEvent> {
    const parts = messages.flatMap((message) => (message.role === 'user' ? message.content : []))
    const texts = parts.flatMap((block) => (block.type === 'textBlock' ? [block.text] : []))
    const last = messages.at(-1)?.content ?? []
    const results = last.filter((block) => block.type === 'toolResultBlock')
    const asked = /^use ([\p{L}\p{N}_-]+): (.*)$/su.exec(texts.at(-1) ?? '')
    const tool = options?.toolSpecs?.find((spec) => spec.name === asked?.[1])
    const call = results.length ? null : asked
    yield { type: 'modelMessageStartEvent', role: 'assistant' }
    if (call?.[1]) {
      const start = { name: call[1], toolUseId: `call_${messages.length}` }
      const input = toArguments(call[2], tool?.inputSchema)
      yield { type: 'modelContentBlockStartEvent', start: { type: 'toolUseStart', ...start } }
      yield { type: 'modelContentBlockDeltaEvent', delta: { type: 'toolUseInputDelta', input } }
    } else {
      yield { type: 'modelContentBlockStartEvent' }
      const reply = ['I am the offline model, not a language model: I repeat what I am told.']
      reply.push(...texts.slice(-5, -1).map((text) => ` Earlier you said: "${text}"`))
      reply.push(` Now you said: "${texts.at(-1)}"`)
      for (const block of last) {
        if (block.type !== 'imageBlock' && block.type !== 'documentBlock') continue
        const size = 'bytes' in block.source ? block.source.bytes.length : 0
        reply.push(` You attached ${mediaTypeOf(block)} (${size} bytes).`)
      }
      for (const result of results) {
        const answer = tool ? textOf(result) : `Unknown tool: ${asked?.[1]}`
        reply.push(` The tool answered: ${answer}`)
      }
      for (const text of reply) {
        yield { type: 'modelContentBlockDeltaEvent', delta: { type: 'textDelta', text } }
      }
    }
    yield { type: 'modelContentBlockStopEvent' }
    yield { type: 'modelMessageStopEvent', stopReason: call ? 'toolUse' : 'endTurn' }
  }
}

/** Return a JSON object unchanged; wrap any other text as the tool's first parameter. */
function toArguments(text = '', schema?: JSONSchema): string {
  const [[name, form] = ['text', {}]] = Object.entries(Object(schema).properties ?? {})
  try {
    if (text.startsWith('{') && JSON.parse(text)) return text
  } catch {
    // not JSON
  }
  return JSON.stringify({ [name]: Object(form).type === 'array' ? [text] : text })
}

function textOf(result: ToolResultBlock): string {
  const [content] = result.content
  return content?.type === 'textBlock' ? content.text : JSON.stringify(content)
}
