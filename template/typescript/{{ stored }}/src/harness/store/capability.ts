// The capability that stores sessions where a collection declares it.

import { randomUUID } from 'node:crypto'
import { isDeepStrictEqual } from 'node:util'

import { Capability } from '../capability.ts'
import { Declarations } from '../collections/capability.ts'
import { CannotList, forEach, type Stock, unread } from '../collections/erasure.ts'
import type { Collection } from '../collections/models.ts'
import { unsetVariables } from '../collections/secrets.ts'
import { diagnostic, type Finding } from '../findings.ts'
import type { Modules } from '../modules.ts'
import { InProcess, type SessionStore, type Stored } from '../sessions/session_store.ts'
import { Conflict, type DurableStore, type Files, StoreUnavailable, Unsupported } from './base.ts'
import { CachedStore } from './cached.ts'
import { DeclaredStore } from './declared.ts'
import { attachFiles, detachFiles } from './detached_files.ts'
import type { StoreSettings } from './settings.ts'
import { parse } from './snapshot.ts'

const SNAPSHOT = {
  scope: 'agent',
  schema_version: '1.0',
  created_at: '1970-01-01T00:00:00Z',
  data: {
    messages: [
      { role: 'user', content: [{ text: 'Grüße 😀' }, { data: 'file'.repeat(256) }] },
      { role: 'assistant', content: [{ tool: { input: [{}, [], '', true, 2.5, null] } }] },
    ],
    state: { name: 'value' },
  },
  app_data: { actor: 'check', turn: 1, key: null, reply: '', turns: [{ at: 0, key: null }] },
}
const MAX_PATHS = 5 // the maximum number of changed fields in a finding
const UNLISTED = 'Delete them there, or single sessions with `sessions end SESSION`.'
const READ_ONLY = 'the session store is read-only here'

/** Stores sessions in the declared store; until its secrets are set, in this process. */
export class Store extends Capability<StoreSettings> {
  readonly declarations: Declarations
  readonly tracedAs = 'session_store'
  /** Wraps the store; another capability may replace this function. */
  decorate: (store: DurableStore) => DurableStore = (store) => store
  #opened: DurableStore | null = null

  constructor(settings: StoreSettings, before: readonly Capability[], load: Modules) {
    super(settings, before, load)
    this.declarations = before.find((capability) => capability instanceof Declarations)!
  }

  /** The collection that declares the session store, or null. */
  get collection(): Collection | null {
    return this.declarations.project.sessionCollections()[0] ?? null
  }

  /** The first unset variable of the store's secrets. */
  get unset(): string | undefined {
    return this.collection ? unsetVariables(this.settings, this.collection)[0] : undefined
  }

  /** Whether the agent may write to the collection. */
  get isWritable(): boolean {
    return this.collection !== null && this.declarations.project.isWritable(this.collection)
  }

  /** The store, or null if sessions live in this process. */
  get store(): DurableStore | null {
    if (!this.collection || this.unset) return null
    this.#opened ??= this.decorate(this.connect(this.collection))
    return this.#opened
  }

  /** Return the store that a collection declares. */
  connect(collection: Collection): DurableStore {
    const { project, secrets } = this.declarations
    return new DeclaredStore(collection, project.agentId, this.settings, secrets)
  }

  override actorRequired(): boolean {
    return this.store !== null && this.collection?.scope.lifetime === 'user'
  }

  override sessionStore(): SessionStore | undefined {
    const { collection, settings, store, unset } = this
    if (!collection) return undefined
    if (!store) return new InProcess(settings, `in this process, until ${unset} is set`)
    const description = `${collection.backend.type}, contacts ${store.contact}`
    return new CachedStore(settings, store, this.isWritable, description)
  }

  /** Return the agent's sessions, and the data that the store keeps beside them. */
  projectStocks(): Stock[] {
    const { collection, store, unset } = this
    if (!collection) return []
    if (!store) return [unread('sessions', 'the session store', unset ?? '')]
    const sessions: Stock = {
      what: 'sessions',
      where: store.contact,
      async *pages() {
        yield await store.sessions().catch((error) => {
          if (!(error instanceof Unsupported)) throw error
          throw new CannotList(`${error.message} ${UNLISTED}`)
        })
      },
      delete: (ids) => forEach(ids, (id) => store.end(id)),
      failures: [StoreUnavailable],
    }
    const staysBecause = this.isWritable ? '' : READ_ONLY
    return [sessions, ...store.leftovers()].map((stock) => ({ ...stock, staysBecause }))
  }

  override async ping(): Promise<Finding[]> {
    const { collection, store } = this
    if (!collection || !store) return []
    return checkStore(store, collection, this.isWritable).finally(() => store.close())
  }

  override get closesLast(): boolean {
    return true
  }

  override async close(): Promise<void> {
    await this.#opened?.close()
  }
}

/** Load, save, compare and end a test session, and return findings. */
export async function checkStore(
  store: DurableStore,
  { collection_id }: Collection,
  isWritable: boolean,
): Promise<Finding[]> {
  const findings: Finding[] = []
  const file = `collections/${collection_id}.collection.md`
  const session = `check-${randomUUID()}`
  let step = 'loaded'
  try {
    await store.load(session)
    for (const [id, message] of await store.warnings()) {
      findings.push(diagnostic(id, message, 'warning', file, 1))
    }
    if (isWritable) {
      step = 'saved'
      try {
        const [snapshot, files] = detachFiles(JSON.stringify(SNAPSHOT), [])
        await store.save(session, snapshot, null, null, files)
        step = 'loaded'
        const stored = await store.load(session)
        const found = await store.loadFiles(session, [...files.keys()])
        const message = changesIn(stored, found)
        if (message) findings.push(diagnostic('AML-E160', message, 'error', file, 1))
        step = 'ended'
      } finally {
        await store.end(session) // after a lost response the test session may exist
      }
    }
  } catch (error) {
    if (!(error instanceof StoreUnavailable || error instanceof Conflict)) throw error
    const message = `No session can be ${step}: ${error.message || 'a conflict'}.`
    findings.push(diagnostic('AML-E160', message, 'error', file, 1))
  }
  return findings
}

/** Compare a loaded session with SNAPSHOT; return a message, or an empty string. */
function changesIn(stored: Stored | null, files: Files): string {
  if (stored === null) return 'A saved session cannot be loaded again.'
  const paths = changed(SNAPSHOT, parse(attachFiles(stored.snapshot, files)), '')
  const names = paths.slice(0, MAX_PATHS).join(', ') + (paths.length > MAX_PATHS ? ', ...' : '')
  return names && `A saved session comes back with changed or missing fields: ${names}.`
}

/** Return the paths of changed or missing values; a store may add fields to objects. */
function changed(saved: unknown, loaded: unknown, path: string): string[] {
  if (Array.isArray(saved) && Array.isArray(loaded) && saved.length === loaded.length) {
    return saved.flatMap((value, index) => changed(value, loaded[index], `${path}[${index}]`))
  }
  if (isMapping(saved) && isMapping(loaded)) {
    const prefix = path && `${path}.`
    return Object.keys(saved).flatMap((name) => changed(saved[name], loaded[name], prefix + name))
  }
  return isDeepStrictEqual(saved, loaded) ? [] : [path || 'everything']
}

function isMapping(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
