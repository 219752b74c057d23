// Sessions in Amazon S3: an object for each, replaced under the condition that nobody else did.

import { v7 as uuid7 } from 'uuid'

import { log, SESSION_ID } from '../contract.ts'
import { type Backend, type Stored, Unavailable } from './backends.ts'
import type { Collection } from './models.ts'
import type { Options } from './options.ts'
import { S3Client } from './s3_client.ts'
import { ensureRule } from './s3_lifecycle.ts'
import { allKeys, Objects } from './s3_objects.ts'
import type { Secrets } from './secrets.ts'

type Declared = Extract<Collection['backend'], { type: 's3' }>

const [LATEST, HISTORY, ASIDE] = ['snapshot_latest.json', 'immutable_history/', 'set_aside/']

/**
 * The objects `<prefix>/<session_id>/agent/<agent_id>/snapshots/…`; a revision is an ETag.
 *
 * What is older than `ttl_days` counts as absent, whether or not S3 has deleted it yet.
 */
export class S3Store implements Backend {
  readonly contact: string
  /** null: the clock of S3. */
  now: (() => Date) | null = null
  readonly #id: string
  readonly #days: number | null
  readonly #options: Options
  readonly #root: string
  readonly #middle: string
  readonly #client: S3Client
  #isRuled: boolean

  constructor(collection: Collection, agentId: string, options: Options, secrets: Secrets) {
    const declared = collection.backend as Declared
    this.#id = collection.collection_id
    this.#days = declared.ttl_days ?? null
    this.#options = options
    this.#root = declared.prefix ? `${declared.prefix}/` : ''
    this.#middle = `/agent/${agentId}/snapshots/`
    const { bucket_secret: reference = '', region } = declared
    this.#client = new S3Client(reference, region, options.storeTimeoutSeconds, secrets)
    // Without a prefix a rule would delete what others have in the bucket.
    this.#isRuled = !this.#root
    this.contact = `the bucket of secret '${reference}' in ${region}`
  }

  async load(
    sessionId: string,
    known: string | null = null,
    checkpoint: string | null = null,
  ): Promise<Stored | null> {
    const name = checkpoint ? `${HISTORY}snapshot_${checkpoint}.json` : LATEST
    const [key, most] = [this.#folder(sessionId) + name, this.#options.maxSnapshotBytes]
    return this.#run((objects) => objects.get(key, known, most))
  }

  async save(
    sessionId: string,
    snapshot: string,
    expected: string | null,
    checkpoint: string | null = null,
  ): Promise<string | null> {
    const folder = this.#folder(sessionId)
    const revision = await this.#run(async (objects) => {
      if (expected) return await objects.put(folder + LATEST, snapshot, { IfMatch: expected })
      await objects.put(`${folder}manifest.json`, manifest())
      return await objects.create(folder + LATEST, snapshot)
    })
    if (checkpoint) await this.keep(sessionId, snapshot, checkpoint)
    this.#tidy(folder, checkpoint !== null)
    return revision
  }

  async keep(sessionId: string, snapshot: string, checkpoint: string): Promise<void> {
    const copy = `${this.#folder(sessionId)}${HISTORY}snapshot_${checkpoint}.json`
    await this.#run((objects) => objects.put(copy, snapshot)).catch((error) => {
      if (!(error instanceof Unavailable)) throw error
      log('WARNING', `session ${sessionId}: no checkpoint: ${error.message}`)
    })
  }

  async setAside(sessionId: string, revision: string | null): Promise<string> {
    const folder = this.#folder(sessionId)
    const name = `${folder}${ASIDE}snapshot_${uuid7()}.json`
    await this.#run((objects) => objects.move(folder + LATEST, name, revision ?? ''))
    return name
  }

  async checkpoints(sessionId: string): Promise<string[]> {
    const start = `${this.#folder(sessionId)}${HISTORY}snapshot_`
    const keys = await this.#run((objects) => objects.keys(start))
    const ids = keys.map((key) => key.slice(start.length, -'.json'.length))
    return ids.slice(-this.#options.checkpoints) // those before are about to be deleted
  }

  async asides(sessionId: string): Promise<string[]> {
    return this.#run((objects) => objects.keys(this.#folder(sessionId) + ASIDE))
  }

  async end(sessionId: string): Promise<void> {
    const folder = this.#folder(sessionId)
    await this.#run(async (objects) => {
      await objects.delete([folder + LATEST]) // first: then no turn that runs can be committed
      await objects.deleteAll(folder, folder + LATEST) // which another replica may have made
    })
  }

  async sessions(): Promise<string[]> {
    const keys = await allKeys((use) => this.#run(use), this.#root)
    const [root, middle] = [this.#root, this.#middle]
    const found = keys.map((key) => key.slice(root.length).split(middle))
    const ids = found.flatMap(([id = '', rest]) => (rest && SESSION_ID.test(id) ? [id] : []))
    return [...new Set(ids)].sort()
  }

  async close(): Promise<void> {
    await this.#client.close()
  }

  #folder(sessionId: string): string {
    return this.#root + sessionId + this.#middle
  }

  #run<T>(use: (objects: Objects) => Promise<T>): Promise<T> {
    return this.#client.run((bucket) => use(new Objects(bucket, this.#days, this.now)))
  }

  /** Begin what no turn waits for: the lifecycle rule, and deleting old checkpoints. */
  #tidy(folder: string, isLonger: boolean): void {
    const [days, kept] = [this.#days, this.#options.checkpoints]
    if (!this.#isRuled) {
      this.#isRuled = true
      const rule = [this.#id, this.#root, days] as const
      this.#client.later('the lifecycle rule', (bucket) => ensureRule(bucket, ...rule))
    }
    if (!isLonger || !kept) return
    this.#client.later('deleting old checkpoints', async (bucket) => {
      const objects = new Objects(bucket)
      await objects.delete((await objects.keys(folder + HISTORY)).slice(0, -kept))
    })
  }
}

function manifest(): string {
  return JSON.stringify({ schema_version: '1.0', updated_at: new Date().toISOString() })
}
