// Somebody who talks to an agent that has a file as its memory.

import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'

import { Parts } from '../src/parts.ts'
import { createSettings, type Settings } from '../src/settings.ts'
import { takeTurn } from '../src/turn.ts'
import { ScriptedModel, type Step } from './scripted_model.ts'

const FILES = {
  'collections/notes.collection.md': `---
spec_version: "1.2"
collection_id: "notes"
version: "1.0.0"
status: "active"
meta: {name: "Notes", description: "What people said. It is theirs alone.", owner: "platform"}
scope: {lifetime: "user"}
backend:
  type: "agentcore_memory"
  memory_id_secret: "secrets/agentcore/notes"
  region: "eu-west-1"
  retrieval_config: {"/users/{actorId}": {top_k: 3, relevance_score: 0.5}}
writeback: {enabled: true}
---
`,
  'agents/helper.agent.md': `---
agent_id: "helper"
memory: {mode: "user", read_collections: ["notes"], write_collections: ["notes"]}
---
`,
}

/** Without a script the offline model answers. */
export class Talk {
  readonly parts: Parts
  readonly model: ScriptedModel

  constructor(script: Step[] = [], settings: Partial<Settings> = {}) {
    this.parts = new Parts(createSettings(settings))
    this.model = new ScriptedModel(script)
    if (script.length > 0) this.parts.model = this.model
  }

  /** The reply, after what the turn is to remember is recorded. */
  async say(actor: string | null, prompt: string, session = 's', seconds = 5): Promise<string> {
    const ask = { sessionId: `${session}-${actor}`, actor, key: null, prompt }
    const signal = AbortSignal.timeout(seconds * 1000)
    try {
      return (await takeTurn(this.parts, ask, async () => {}, signal)).reply
    } finally {
      while (this.parts.isWaiting) await sleep(5)
    }
  }

  /** The session as it was committed. */
  async stored(actor: string): Promise<string> {
    const ask = { sessionId: `s-${actor}`, actor, key: null, prompt: null }
    const { signal } = new AbortController()
    return JSON.stringify(await this.parts.sessions.open(ask, signal, async (it) => it.snapshot))
  }
}

/** The values of a key in the rows of the memory. */
export function rows(key: string): unknown[] {
  const path = join('.memory', 'notes.jsonl')
  const lines = existsSync(path) ? readFileSync(path, 'utf8').trim().split('\n') : []
  return lines.map((line) => JSON.parse(line)[key]).filter((value) => value !== undefined)
}

/** Go to a new project of these files, which has remembered nothing. */
export function begin(): void {
  process.chdir(mkdtempSync(join(tmpdir(), 'recalling-')))
  for (const [path, text] of Object.entries(FILES)) {
    mkdirSync(path.split('/')[0]!)
    writeFileSync(path, text)
  }
  for (const name of ['SECRETS_AGENTCORE_NOTES', 'AGENT_ID', 'ADD_MEMORY_TOOL']) {
    delete process.env[name]
  }
  process.env.RECALL_TIMEOUT_SECONDS = '1'
}

/** Leave the project, which is deleted. */
export function end(): void {
  const folder = process.cwd()
  process.chdir(tmpdir())
  rmSync(folder, { recursive: true })
}
