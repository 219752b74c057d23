// An agent's tools in the format of Strands.

import type { InterventionHandler, Tool } from '@strands-agents/sdk'

import type { Declaration } from './tool_schemas.ts'

/** The tools of the module `agent`. */
export type OwnTools = readonly Tool[]

/** The tools of a turn. */
export type Tools = Tool[]

/** Optional exports of the module `agent`. */
export interface AgentOptions {
  readonly INTERVENTIONS?: InterventionHandler[]
}

/** Options that `prepare` cannot set, with alternatives. */
export const UNSUPPORTED_OPTIONS: Record<string, string> = {
  conversationManager: 'set HISTORY_MESSAGES',
  messages: 'the session provides them',
  sessionManager: 'choose a session store',
  structuredOutputSchema: "set the TurnRequest's `output`",
}

/** A tool with its name. */
export type NamedTool = Tool

/** Return the mistakes in TOOLS of the module `agent`. */
export function mistakesIn(tools: OwnTools): string[] {
  if (!Array.isArray(tools)) return ['TOOLS is not an array: write it like `[wordCount]`.']
  return tools.flatMap((tool: Partial<Tool> | null, index) => {
    return tool?.toolSpec ? [] : [`TOOLS[${index}] is not a tool: use \`tool()\`.`]
  })
}

/** Merge tools; in a name conflict, the agent's own tool wins. */
export function mergeTools(ownTools: OwnTools, moreTools: readonly NamedTool[]): Tools {
  const entries = [...moreTools, ...ownTools].map((tool): [string, Tool] => [tool.name, tool])
  return [...new Map(entries).values()]
}

/** Return the name and the description of each tool. */
export function describeTools(tools: OwnTools): [string, string][] {
  return tools.map(({ name, description }) => [name, description])
}

/** Return the name, the description and the JSON Schema of each tool. */
export async function declarationsOf(tools: OwnTools): Promise<Declaration[]> {
  return tools.map(({ name, description, toolSpec }) => [name, description, toolSpec.inputSchema])
}
