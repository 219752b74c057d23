// The built-in echo model: repeats prompts, and calls a tool on request.

import type { LanguageModel, ToolResultPart } from 'ai'

/** The framework's type of a model. */
export type { LanguageModel } from 'ai'

type Prompt = Call['prompt']
type Model = Extract<LanguageModel, { specificationVersion: 'v4' }>
export type Call = Parameters<Model['doStream']>[0]
type Answer = Awaited<ReturnType<Model['doStream']>>
export type Part = Answer['stream'] extends ReadableStream<infer Part> ? Part : never

/** Repeats the conversation; the same conversation always gets the same reply. */
export class OfflineModel implements Model {
  readonly specificationVersion = 'v4'
  readonly provider = 'offline'
  readonly modelId: string = 'offline'
  readonly supportedUrls = {}

  doGenerate(): never {
    throw new Error('This model only streams.')
  }

  async doStream(options: Call): Promise<Answer> {
    return { stream: ReadableStream.from(this.answer(options)) }
  }

  async *answer(options: Call): AsyncGenerator<Part> {
    const { prompt, tools = [] } = options
    const parts = prompt.flatMap((message) => (message.role === 'user' ? message.content : []))
    const texts = parts.flatMap((part) => (part.type === 'text' ? [part.text] : []))
    const last = prompt.at(-1)
    const results = last?.role === 'tool' ? last.content : []
    const call = results.length ? null : /^use ([\p{L}\p{N}_-]+): (.*)$/su.exec(texts.at(-1) ?? '')
    if (call?.[1]) {
      const tool = tools.find(({ name }) => name === call[1])
      const input = toArguments(call[2], tool)
      const toolCallId = `call_${prompt.length}`
      yield { type: 'tool-call', toolCallId, toolName: call[1], input }
    } else {
      const reply = ['I am the offline model, not a language model: I repeat what I am told.']
      reply.push(...texts.slice(-5, -1).map((text) => ` Earlier you said: "${text}"`))
      reply.push(` Now you said: "${texts.at(-1)}"`)
      for (const [mediaType, size] of filesOf(last?.content ?? [])) {
        reply.push(` You attached ${mediaType} (${size} bytes).`)
      }
      for (const result of results) {
        if (result.type !== 'tool-result') continue
        const { toolName: name, output } = result
        const isKnown = tools.some((tool) => tool.name === name)
        reply.push(` The tool answered: ${isKnown ? textOf(output) : `Unknown tool: ${name}`}`)
      }
      yield { type: 'text-start', id: '1' }
      for (const delta of reply) yield { type: 'text-delta', id: '1', delta }
      yield { type: 'text-end', id: '1' }
    }
    yield finish(call ? 'tool-calls' : 'stop')
  }
}

/** Return the media type and the size of each file in a message. */
function filesOf(content: Prompt[number]['content']): [mediaType: string, size: number][] {
  if (typeof content === 'string') return []
  return content.flatMap((part): [string, number][] => {
    if (part.type !== 'file' || part.data.type !== 'data') return []
    const { data } = part.data
    const bytes = typeof data === 'string' ? Buffer.from(data, 'base64') : data
    return [[part.mediaType, bytes.length]]
  })
}

/** Return a tool's output as text; a file becomes its type, as in `[image]`. */
export function textOf(output: ToolResultPart['output']): string {
  if (output.type === 'content') {
    const texts = output.value.map((part) => {
      if (part.type === 'text') return part.text
      return `[${('mediaType' in part ? part.mediaType : part.type).split(/[/-]/)[0]}]`
    })
    return texts.join('\n')
  }
  // For a denial without a reason, the clients of providers send the same text.
  const value = 'value' in output ? output.value : (output.reason ?? 'Tool call execution denied.')
  return typeof value === 'string' ? value : JSON.stringify(value)
}

/** Return a JSON object unchanged; wrap any other text as the tool's first parameter. */
function toArguments(text = '', tool?: object): string {
  const schema = tool && 'inputSchema' in tool ? tool.inputSchema : {}
  const [[name, form] = ['text', {}]] = Object.entries(Object(schema).properties ?? {})
  try {
    if (text.startsWith('{') && JSON.parse(text)) return text
  } catch {
    // not JSON
  }
  return JSON.stringify({ [name]: Object(form).type === 'array' ? [text] : text })
}

/** Return the part that ends a stream. */
export function finish(unified: 'stop' | 'tool-calls' | 'length' | 'content-filter'): Part {
  const outputTokens = { total: 0, text: 0, reasoning: 0 }
  const inputTokens = { total: 0, noCache: 0, cacheRead: 0, cacheWrite: 0 }
  const finishReason = { unified, raw: unified }
  return { type: 'finish', finishReason, usage: { inputTokens, outputTokens } }
}
