// Converts tools of MCP servers to tools of the AI SDK.

import { dynamicTool, jsonSchema, type Tool } from 'ai'

type Call = (args: unknown, signal: AbortSignal) => Promise<string>

/** Return the names of tools. */
export function namesOf(tools: object): string[] {
  return Object.keys(tools)
}

/** Return a tool of the framework; error messages are for the model. */
export function toTool(
  name: string,
  description: string,
  schema: object,
  call: Call,
): [string, Tool] {
  const execute = (args: unknown, { abortSignal }: { abortSignal?: AbortSignal }) =>
    call(args, abortSignal ?? new AbortController().signal)
  return [name, dynamicTool({ description, inputSchema: jsonSchema(schema), execute })]
}
