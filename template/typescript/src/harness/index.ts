// The harness of the agent: it comes from the template, and `copier update` merges it.
//
// Edits here can conflict with updates. Put your own code in the parent folder.

export { AgentApp, type OwnModule, type OwnModules } from './app.ts'
export { Capability, type CapabilityClass } from './capability.ts'
export { runCommand } from './commands.ts'
export { AgentError, type Change, type Chunk, currentTurn, Data, File } from './contract.ts'
export { Reasoning, Source } from './contract.ts'
export { Turn, TurnRequest } from './contract.ts'
export type { ToolCall, ToolResult, TurnResult, Usage } from './contract.ts'
export { diagnostic, type Finding } from './findings.ts'
export { type AgentModule, type Handler, type ModelModule, type Modules } from './modules.ts'
export { type Options, type Read, type Route, route, type RouteCall } from './modules.ts'
export type { RouteOptions, Routes, Runtime } from './modules.ts'
export type { SessionInfo, SessionTurn } from './sessions/sessions.ts'
export { boolean, type CoreSettings, integer, readSettings, secret } from './settings.ts'
export { type SettingsOf, string, stringList } from './settings.ts'
export type { NamedTool } from './tools.ts'
