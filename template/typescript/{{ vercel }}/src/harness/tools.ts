// An agent's tools in the format of the AI SDK.

import { asSchema, type generateText, type Tool } from 'ai'

import { type Declaration, isObject } from './tool_schemas.ts'

// Caches the JSON Schemas, which the SDK would convert for each model call.
const SCHEMAS = new WeakMap<object, ReturnType<typeof asSchema>>()

/** The tools of the module `agent`, by name. */
export type OwnTools = Readonly<Record<string, Tool>>

/** The tools of a turn, by name. */
export type Tools = Record<string, Tool>

/** Optional exports of the module `agent`. */
export interface AgentOptions {
  readonly TOOL_APPROVAL?: Parameters<typeof generateText>[0]['toolApproval']
}

/** Options that `prepare` cannot set, with alternatives. */
export const UNSUPPORTED_OPTIONS: Record<string, string> = {
  abortSignal: 'use `currentTurn().signal`',
  messages: 'the session provides them',
  output: "set the TurnRequest's `output`",
  prompt: 'the request provides it',
  stopWhen: 'set MAX_STEPS, or export FINAL_TOOLS',
}

/** A tool with its name. */
export type NamedTool = [name: string, tool: Tool]

/** Return the mistakes in TOOLS of the module `agent`. */
export function mistakesIn(tools: OwnTools): string[] {
  const remedy = 'write it like `{ word_count: wordCount }`.'
  if (!isObject(tools)) return [`TOOLS is not an object: ${remedy}`]
  if ('inputSchema' in tools) return [`TOOLS is one tool: ${remedy}`]
  return Object.entries(tools)
    .filter(([, tool]) => !isObject(tool))
    .map(([name]) => `'${name}' in TOOLS is not a tool: use \`tool()\`.`)
}

/** Merge tools; in a name conflict, the agent's own tool wins. */
export function mergeTools(ownTools: OwnTools, moreTools: readonly NamedTool[]): Tools {
  const tools = { ...Object.fromEntries(moreTools), ...ownTools }
  return Object.fromEntries(Object.entries(tools).map(([name, tool]) => [name, withSchema(tool)]))
}

function withSchema(tool: Tool): Tool {
  if (!tool.inputSchema) return tool // a tool without input, against its type
  const inputSchema = SCHEMAS.get(tool.inputSchema) ?? asSchema(tool.inputSchema)
  SCHEMAS.set(tool.inputSchema, inputSchema)
  return { ...tool, inputSchema }
}

/** Return the name and the description of each tool. */
export function describeTools(tools: OwnTools): [string, string][] {
  return Object.entries(tools).map(([name, { description }]) => {
    return [name, typeof description === 'string' ? description : '']
  })
}

/** Return the name, the description and the JSON Schema of each tool. */
export async function declarationsOf(tools: OwnTools): Promise<Declaration[]> {
  const results = describeTools(tools).map(async ([name, description]): Promise<Declaration> => {
    const schema = tools[name]?.inputSchema
    return [name, description, schema && (await asSchema(schema).jsonSchema)]
  })
  return Promise.all(results)
}
