// The session store of an agent: where a collection in use keeps sessions.

import { Capability, find } from '../capability.ts'
import { Declarations } from '../collections/capability.ts'
import type { Collection } from '../collections/models.ts'
import { unsetVariables } from '../collections/secrets.ts'
import type { Finding } from '../findings.ts'
import { InProcess, type SessionStore } from '../session_store.ts'
import type { DurableStore } from './base.ts'
import { CachedStore } from './cached.ts'
import { checkStore } from './check.ts'
import { DeclaredStore } from './declared.ts'
import type { StoreSettings } from './settings.ts'

/** The store of the sessions; while its variable is unset, they live in this process. */
export class Store extends Capability<StoreSettings> {
  readonly declarations: Declarations
  readonly tracedAs = 'session_store'
  /** Returns the store with a layer around it, which another capability may set. */
  decorate: (store: DurableStore) => DurableStore = (store) => store
  #opened: DurableStore | null = null

  constructor(settings: StoreSettings, before: readonly Capability[]) {
    super(settings, before)
    this.declarations = find(Declarations, before)
  }

  /** The collection that declares where sessions live. */
  get collection(): Collection | null {
    return this.declarations.project.sessionCollections()[0] ?? null
  }

  /** The variable to set before the store is used. */
  get unset(): string | undefined {
    return this.collection ? unsetVariables(this.settings, this.collection)[0] : undefined
  }

  get isWritable(): boolean {
    return this.collection !== null && this.declarations.project.isWritable(this.collection)
  }

  /** The store; null: sessions live in this process. */
  get store(): DurableStore | null {
    if (!this.collection || this.unset) return null
    const { project, secrets } = this.declarations
    this.#opened ??= this.decorate(
      new DeclaredStore(this.collection, project.agentId, this.settings, secrets),
    )
    return this.#opened
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

  override async ping(): Promise<Finding[]> {
    const { collection, store } = this
    return collection && store ? await checkStore(store, collection, this.isWritable) : []
  }

  override async close(): Promise<void> {
    await this.#opened?.close()
  }
}
