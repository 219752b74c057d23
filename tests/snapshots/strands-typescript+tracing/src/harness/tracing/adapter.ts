// The spans of Strands.

import type { Attributes } from '@opentelemetry/api'

const PROVIDER = 'aws.bedrock'
// Store content in attributes, as in the latest convention. The default is events.
const CONVENTION = 'gen_ai_latest_experimental,gen_ai_span_attributes_only'

/** The base64 of a file in a tool's result. */
export const FILE = /("bytes":")([^"]+)/g

/** Return the name of the framework's tracer. */
export function scope(): string {
  return process.env.OTEL_SERVICE_NAME || 'strands-agents'
}

/** Let the framework make spans. */
export async function instrument(): Promise<void> {
  process.env.OTEL_SEMCONV_STABILITY_OPT_IN ??= CONVENTION
}

/** Masks tool names that the agent does not have, because a model may invent names. */
export class ToolNames {
  readonly #tools = new Set<unknown>()

  ofSpan(name: string): string {
    const [operation = '', tool] = name.split(' ')
    return operation === 'execute_tool' && !this.#tools.has(tool) ? operation : name
  }

  mask(attributes: Attributes): Attributes {
    const { 'gen_ai.agent.tools': tools = '[]', 'gen_ai.tool.name': tool } = attributes
    for (const name of JSON.parse(String(tools))) this.#tools.add(name)
    const isUnknown = tool !== undefined && !this.#tools.has(tool)
    return {
      ...attributes,
      ...('gen_ai.provider.name' in attributes && { 'gen_ai.provider.name': PROVIDER }),
      ...(isUnknown && { 'gen_ai.tool.name': 'unknown' }),
    }
  }
}
