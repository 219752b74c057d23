// A snapshot as it travels to a custom backend and back, and what stands for one set aside.

import { isUtf8 } from 'node:buffer'

import { Unavailable } from './backends.ts'

const NOBODY = { actor: null, turn: 1, key: null, reply: '' }

type Wire = Record<string, unknown>

/** The time, as snapshots and manifests have it. */
export function now(): string {
  return `${new Date().toISOString().slice(0, 19)}Z`
}

/** A committed snapshot in the words of the contract, with all that its `data` must have. */
export function toWire(snapshot: string): Wire & { app_data: { turn?: number } } {
  const value = JSON.parse(snapshot)
  const { state = {}, system_prompt = null } = value.data
  return { ...value, data: { ...value.data, state, system_prompt } }
}

/**
 * What was committed. A foreign version in the manifest shows in it, so that it is refused.
 *
 * The snapshot of another runtime, which is of version "1", has no turns that it could count.
 */
export function fromWire(given: Wire, manifest: Wire | null): string {
  const value: Wire = { ...(given.schema_version === '1' && { app_data: NOBODY }), ...given }
  if (isObject(value.data)) {
    const { system_prompt: _, ...data } = value.data // the code's own applies
    value.data = data
  }
  const version = manifest ? manifest.schema_version : '1.0'
  if (version !== '1' && version !== '1.0') {
    value.schema_version = `${version} in its manifest`
  }
  return toText(value)
}

/** The JSON of a value; none, which cannot be read, when it is nested too deeply. */
export function toText(value: unknown): string {
  try {
    return JSON.stringify(value)
  } catch {
    return ''
  }
}

/** A text for bytes that are no JSON, which is none either when they are no UTF-8. */
export function toUnreadable(raw: Uint8Array = Buffer.of()): string {
  const text = Buffer.from(raw).toString()
  return isUtf8(raw) ? text : `\ufffd${text}`
}

/** What keeps the bytes of an answer that cannot be read. */
export function setAside(raw: Buffer): Wire {
  const text = { set_aside: raw.toString() }
  return snapshot(isUtf8(raw) ? text : { set_aside_base64: raw.toString('base64') }, 'latest')
}

/** What replaces the latest snapshot when it was set aside under that name. */
export function marker(name: string): Wire {
  return snapshot({}, name)
}

/** Whether an answer is a marker, or what was set aside. */
export function isMarker(value: unknown): boolean {
  return isObject(value) && isObject(value.app_data) && 'set_aside' in value.app_data
}

/** All of a body; throws Unavailable when it is longer than allowed. */
export async function readBody(body: AsyncIterable<Uint8Array>, most: number): Promise<Buffer> {
  const chunks: Uint8Array[] = []
  let size = 0
  for await (const chunk of body) {
    chunks.push(chunk)
    size += chunk.length
    if (size > most) throw new Unavailable(`an answer of more than ${most} bytes`)
  }
  return Buffer.concat(chunks)
}

/** Whether it is a JSON object. */
export function isObject(value: unknown): value is Wire {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function snapshot(data: Wire, aside: string): Wire {
  const kept = { data, schema_version: '1.0', created_at: now(), scope: 'agent' }
  return { ...kept, app_data: { set_aside: aside } }
}
