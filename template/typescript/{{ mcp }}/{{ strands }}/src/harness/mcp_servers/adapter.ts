// Converts tools of MCP servers to tools of Strands.

import { FunctionTool, type JSONSchema, type Tool } from '@strands-agents/sdk'

type Call = (args: unknown, signal: AbortSignal) => Promise<string>

/** Return the names of tools. */
export function namesOf(tools: readonly Tool[]): string[] {
  return tools.map(({ name }) => name)
}

/** Return a tool of the framework; error messages are for the model. */
export function toTool(name: string, description: string, schema: object, call: Call): Tool {
  return new FunctionTool({
    name,
    description,
    inputSchema: schema as JSONSchema,
    callback: (args, { cancelSignal }) => call(args, cancelSignal),
  })
}
