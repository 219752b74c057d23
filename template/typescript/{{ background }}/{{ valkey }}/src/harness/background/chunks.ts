// The text and the reasoning in the recorded events of a turn.

import { once } from 'node:events'

import { AgentError, type Chunk, Reasoning } from '../contract.ts'
import { BackgroundError, DONE } from './failures.ts'
import { CHUNK_BYTES } from './readers.ts'
import type { Recording } from './recording.ts'

const EVENT = /^(?:event: (\w+)\n)?data: ([^\n]*)\n/ // name and data

/** The fields of the parts of useChat that are read. */
interface Part {
  readonly type: string
  readonly delta?: string
  readonly errorText?: string
}

/**
 * Yield the text and the reasoning of a turn while it runs, until `signal` aborts.
 *
 * Throws AgentError if the turn fails, or if events are dropped before they are read.
 */
export async function* readChunks(
  recording: Recording,
  signal: AbortSignal,
): AsyncGenerator<Chunk> {
  const reader = { next: recording.first }
  recording.readers.add(reader)
  try {
    while (!signal.aborted) {
      const events = recording.read(reader.next, CHUNK_BYTES)
      if (!events) throw toAgentError(new BackgroundError('events_lost'))
      for (const event of events) {
        const chunk = parse(recording, event)
        if (chunk) yield chunk
      }
      reader.next += events.length
      if (events.length > 0) continue
      if (recording.state !== 'running') break
      await once(recording, 'change', { signal })
    }
    if (recording.lost) parse(recording, recording.lost)
  } finally {
    recording.readers.delete(reader)
  }
}

/** Return the chunk in an event. Throws the error in an event as AgentError. */
function parse(recording: Recording, event: string): Chunk | undefined {
  const match = EVENT.exec(event)
  if (!match || event === DONE) return undefined
  const [, name, text = ''] = match
  const data: unknown = JSON.parse(text)
  if (recording.format === 'chat') return parsePart(data as Part)
  if (name === undefined) return data as string
  if (name === 'reasoning') return new Reasoning(data as string)
  if (name === 'error') {
    const { error } = data as { error: { type: string; message: string } }
    throw toAgentError(error)
  }
  return undefined
}

/** Return the chunk in a part of useChat. Throws AgentError. */
function parsePart({ type, delta = '', errorText = '' }: Part): Chunk | undefined {
  if (type === 'text-delta') return delta
  if (type === 'reasoning-delta') return new Reasoning(delta)
  if (type === 'abort') throw toAgentError(new BackgroundError('turn_stopped'))
  if (type !== 'error') return undefined
  const [, kind = '', message = ''] = /^(\w*): (.*)$/su.exec(errorText) ?? []
  throw toAgentError({ type: kind, message })
}

/** Return an error for the user of `chat`, who sees its message and its type. */
function toAgentError({ type, message }: { type: string; message: string }): AgentError {
  return new AgentError('internal_error', message, type)
}
