// Notes of each customer: in Valkey, or in this process while NOTES_URL is unset.

import { tool } from 'ai'
import type { Valkey } from 'iovalkey'
import { z } from 'zod'

import { Capability, currentTurn, type NamedTool } from './harness/index.ts'
import type { Settings } from './own_settings.ts'

export class Notes extends Capability<Settings> {
  readonly #inProcess = new Map<string, string[]>()
  #valkey: Valkey | undefined

  override async open(): Promise<void> {
    const { notesUrl } = this.settings
    if (!notesUrl) return
    const { Valkey } = await import('iovalkey')
    this.#valkey = new Valkey(notesUrl, { lazyConnect: true })
    await this.#valkey.connect()
  }

  override async close(): Promise<void> {
    await this.#valkey?.quit()
  }

  override tools(): NamedTool[] {
    const save = tool({
      description: 'Save a note for later conversations with this user.',
      inputSchema: z.object({ note: z.string().max(10_000) }),
      execute: async ({ note }) => {
        await this.#add(keyOf(), note)
        return 'The note is saved.'
      },
    })
    const read = tool({
      description: 'Read all notes of this user.',
      inputSchema: z.object({}),
      execute: () => this.#all(keyOf()),
    })
    const remove = tool({
      description: 'Delete all notes of this user.',
      inputSchema: z.object({}),
      execute: async () => {
        await this.#delete(keyOf())
        return 'The notes are deleted.'
      },
    })
    return [
      ['save_note', save],
      ['read_notes', read],
      ['delete_notes', remove],
    ]
  }

  async #add(key: string, note: string): Promise<void> {
    if (this.#valkey) await this.#valkey.rpush(key, note)
    else this.#inProcess.set(key, [...(this.#inProcess.get(key) ?? []), note])
  }

  async #all(key: string): Promise<string[]> {
    if (this.#valkey) return this.#valkey.lrange(key, 0, -1)
    return this.#inProcess.get(key) ?? []
  }

  async #delete(key: string): Promise<void> {
    if (this.#valkey) await this.#valkey.del(key)
    else this.#inProcess.delete(key)
  }
}

/** Return the key of the notes of the running turn's customer. */
function keyOf(): string {
  return `notes:${currentTurn().actor ?? ''}`
}
