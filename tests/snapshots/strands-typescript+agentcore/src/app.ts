// The agent: your modules, and the harness that runs them.

import { AgentApp } from './harness/index.ts'
import * as own from './own_capabilities.ts'

export const app = new AgentApp({
  folder: import.meta.dirname,
  // Loaded by the commands that need them.
  agent: () => import('./agent.ts'),
  model: () => import('./model.ts'),
  routes: async () => (await import('./routes.ts')).ROUTES,
  memory: async () => new (await import('./own_memory.ts')).OwnMemory(),
  own,
})
