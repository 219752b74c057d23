// What a start needs of the stores and memories: variables that are set, secrets that are found.

import { type Diagnostic, diagnostic, type Settings } from '../settings.ts'
import { AgentCore } from './agentcore.ts'
import { Unavailable } from './backends.ts'
import { LongTerm } from './long_term.ts'
import type { Collection } from './models.ts'
import type { Options } from './options.ts'
import { loadProject } from './project.ts'
import { referencesOf, Secrets, variableOf } from './secrets.ts'
import { buildBackend, keepers } from './stores.ts'

/** The variables to set before the collection is used; with a real model it always is. */
export function unset(settings: Settings, collection: Collection): string[] {
  if (settings.model !== 'offline') return []
  const names = referencesOf(collection).map(([reference]) => variableOf(reference))
  return names.filter((name) => name && !process.env[name]?.trim())
}

/** What keeps the stores and memories of the project from being used. */
export async function checkStores(settings: Settings, options: Options): Promise<Diagnostic[]> {
  const [project, secrets] = [loadProject('.', options.agentId), new Secrets(options)]
  const checks = keepers(project).map((collection) => async () => {
    const looked = settings.model === 'offline' ? [] : referencesOf(collection)
    for (const reference of looked) await secrets.get(...reference)
    const isSet = unset(settings, collection).length === 0
    if (isSet) buildBackend(collection, project.agentId, options, secrets)
  })
  checks.push(async () => {
    const longTerm = new LongTerm(settings, options, project, secrets)
    for (const memory of longTerm.memories.values()) {
      if (memory instanceof AgentCore && settings.model !== 'offline') await memory.memoryId()
    }
    await longTerm.check()
  })
  const found: Diagnostic[] = []
  for (const check of checks) {
    try {
      await check()
    } catch (error) {
      if (!(error instanceof Unavailable)) throw error
      found.push(diagnostic('SET-STORE', `${error.message}.`))
    }
  }
  return found
}
