// Sessions in a folder, as a backup or on the way to a store of another type.

import { createHash, randomUUID } from 'node:crypto'
import { mkdir, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'

import { z } from 'zod'

import { describe } from '../log.ts'
import type { Stored } from '../sessions/session_store.ts'
import { Conflict, type DurableStore, type Files, NO_FILES, StoreUnavailable } from './base.ts'

const snapshot = z.looseObject({})
const Row = z.object({
  session_id: z.string().min(1),
  latest: snapshot,
  checkpoints: z.record(z.string(), snapshot),
  files: z.record(z.string(), z.string()).default({}), // in base64, by name
})
type Row = z.output<typeof Row>

/** A DurableStore with a file for each session. Only one process may write at a time. */
export class SessionFiles implements DurableStore {
  readonly contact: string
  readonly #folder: string

  constructor(folder: string) {
    this.#folder = folder
    this.contact = `the folder ${folder}`
  }

  async load(sessionId: string): Promise<Stored | null> {
    const row = await this.#read(this.#path(sessionId))
    if (!row) return null
    const latest = JSON.stringify(row.latest)
    return { revision: hash(latest), snapshot: latest }
  }

  async save(
    sessionId: string,
    snapshot: string,
    expected: string | null,
    checkpoint: string | null = null,
    files: Files = NO_FILES,
  ): Promise<string | null> {
    const stored = await this.load(sessionId)
    if ((stored?.revision ?? null) !== expected) throw new Conflict()
    const before = await this.#read(this.#path(sessionId))
    const latest = JSON.parse(snapshot)
    const added = checkpoint ? { [checkpoint]: latest } : {}
    const checkpoints = { ...before?.checkpoints, ...added }
    const encoded = [...files].map(([name, content]) => [name, toBase64(content)])
    const allFiles = { ...before?.files, ...Object.fromEntries(encoded) }
    await this.#write({ session_id: sessionId, latest, checkpoints, files: allFiles })
    return hash(JSON.stringify(latest))
  }

  async saveCheckpoint(sessionId: string, snapshot: string, checkpoint: string): Promise<void> {
    const row = await this.#read(this.#path(sessionId))
    if (!row) return
    const checkpoints = { ...row.checkpoints, [checkpoint]: JSON.parse(snapshot) }
    await this.#write({ ...row, checkpoints })
  }

  async loadCheckpoint(sessionId: string, checkpoint: string): Promise<string | null> {
    const row = await this.#read(this.#path(sessionId))
    const snapshot = row?.checkpoints[checkpoint]
    return snapshot ? JSON.stringify(snapshot) : null
  }

  async checkpoints(sessionId: string): Promise<string[]> {
    const row = await this.#read(this.#path(sessionId))
    return Object.keys(row?.checkpoints ?? {}).toSorted()
  }

  async loadFiles(sessionId: string, names: readonly string[]): Promise<Files> {
    const row = await this.#read(this.#path(sessionId))
    const files = new Map<string, Uint8Array>()
    for (const name of names) {
      const text = row?.files[name]
      if (text === undefined) continue
      const content = Buffer.from(text, 'base64')
      if (toBase64(content) !== text) {
        throw new StoreUnavailable(`a file of session ${sessionId} is damaged`)
      }
      files.set(name, content)
    }
    return files
  }

  async trimFiles(sessionId: string): Promise<void> {
    const row = await this.#read(this.#path(sessionId))
    if (!row) return
    const text = JSON.stringify([row.latest, row.checkpoints])
    const used = Object.entries(row.files).filter(([name]) => text.includes(name))
    await this.#write({ ...row, files: Object.fromEntries(used) })
  }

  async quarantine(): Promise<string> {
    throw new StoreUnavailable('a folder cannot quarantine snapshots')
  }

  async quarantined(): Promise<string[]> {
    return []
  }

  async sessions(): Promise<string[]> {
    const ids: string[] = []
    const names = await readdir(this.#folder).catch((error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT') return []
      throw new StoreUnavailable(`${this.contact} cannot be read (${describe(error)})`)
    })
    for (const name of names) {
      const row = name.endsWith('.json') && (await this.#read(join(this.#folder, name)))
      if (row) ids.push(row.session_id)
    }
    return ids.toSorted()
  }

  async end(sessionId: string): Promise<void> {
    const path = this.#path(sessionId)
    await rm(path, { force: true }).catch((error: Error) => {
      throw new StoreUnavailable(`${path} cannot be deleted (${describe(error)})`)
    })
  }

  leftovers(): [] {
    return []
  }

  async warnings(): Promise<[]> {
    return []
  }

  async close(): Promise<void> {}

  /** Return the path of a session, unique even in a case-insensitive file system. */
  #path(sessionId: string): string {
    return join(this.#folder, `${hash(sessionId)}.json`)
  }

  async #read(path: string): Promise<Row | null> {
    try {
      return Row.parse(JSON.parse(await readFile(path, 'utf8')))
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null
      throw new StoreUnavailable(`${path} is not a stored session (${describe(error)})`)
    }
  }

  async #write(row: Row): Promise<void> {
    const path = this.#path(row.session_id)
    const temporary = `${path}.${randomUUID()}`
    try {
      await mkdir(this.#folder, { mode: 0o700, recursive: true })
      await writeFile(temporary, JSON.stringify(row), { mode: 0o600 })
      await rename(temporary, path)
    } catch (error) {
      await rm(temporary, { force: true }).catch(() => {}) // it contains conversation text
      throw new StoreUnavailable(`${path} cannot be written (${describe(error)})`)
    }
  }
}

function toBase64(content: Uint8Array): string {
  return Buffer.from(content).toString('base64')
}

function hash(text: string): string {
  return createHash('sha256').update(text).digest('hex')
}
