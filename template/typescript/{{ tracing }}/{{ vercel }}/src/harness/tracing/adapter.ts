// The spans of the AI SDK.

import type { Attributes } from '@opentelemetry/api'

/** The base64 of a file in a prompt or in a tool's result. */
export const FILE = RegExp(
  '("type":"blob","modality":"\\w*","mime_type":"[^"]*","content":"|"data":")' +
    '([A-Za-z0-9+/_-]+=*)(?=")',
  'g',
)

/** Return the name of the framework's tracer. */
export function scope(): string {
  return 'gen_ai'
}

/** Let the framework make spans. */
export async function instrument(): Promise<void> {
  const [{ registerTelemetry }, { OpenTelemetry }] = await Promise.all([
    import('ai'),
    import('@ai-sdk/otel'),
  ])
  registerTelemetry(new OpenTelemetry())
}

/** Masks no tool names: the SDK calls only declared tools. */
export class ToolNames {
  ofSpan(name: string): string {
    return name
  }

  mask(attributes: Attributes): Attributes {
    return attributes
  }
}
