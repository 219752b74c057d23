// Streams a recording to a reader, which never slows down the turn or other readers.

import { once } from 'node:events'
import type { OutgoingHttpHeaders, ServerResponse } from 'node:http'

import { AgentError } from '../contract.ts'
import { BackgroundError, formatError } from './failures.ts'
import type { Recording } from './recording.ts'
import type { BackgroundSettings } from './settings.ts'

/** The size of the events that a reader gets at once: a slow reader holds no more. */
export const CHUNK_BYTES = 65_536
const KEEP_ALIVE = ': keep-alive\n\n' // an SSE comment, sent because proxies close idle connections
const EVENT_ID = /^([\w-]{16})\.(\d{1,15})$/ // turn id and number

/** Return the number of the event after the event with this id, or 1 for another turn's id. */
export function numberAfter(recording: Recording, eventId: string): number {
  const [, turnId, number] = EVENT_ID.exec(eventId) ?? []
  return turnId === recording.turnId ? Number(number) + 1 : 1
}

/**
 * Throw an error if no reader can start at this number.
 *
 * Throws AgentError `rate_limited`, or BackgroundError `events_lost`.
 */
export function checkReader(recording: Recording, number: number, maxReaders: number): void {
  if (recording.readers.size >= maxReaders) {
    throw new AgentError('rate_limited', 'This turn has too many readers; retry later.')
  }
  if (number < recording.first) throw new BackgroundError('events_lost')
}

/** Send the events from this number on, until the turn ends or the client leaves. */
export async function stream(
  response: ServerResponse,
  recording: Recording,
  number: number,
  headers: OutgoingHttpHeaders,
  settings: BackgroundSettings,
): Promise<void> {
  const left = new AbortController()
  const { signal } = left
  if (response.destroyed) return // the client left while the recording was found
  response.once('close', () => left.abort())
  response.writeHead(200, headers)
  if (response.req.method === 'HEAD') return void response.end()
  response.flushHeaders()
  const silence = settings.keepAliveSeconds * 1000
  let lastSent = performance.now()
  const clock = setInterval(() => {
    const now = performance.now()
    const isExpired = now - recording.endedAt > settings.eventSeconds * 1000
    if (isExpired) response.destroy() // it does not receive
    if (now - lastSent < silence || response.writableNeedDrain) return
    lastSent = now
    response.write(KEEP_ALIVE)
  }, silence / 10)
  const { format } = recording
  const reader = { next: number }
  recording.readers.add(reader)
  try {
    while (!signal.aborted) {
      const events = recording.read(reader.next, CHUNK_BYTES)
      if (!events) return void response.end(formatError(format, new BackgroundError('events_lost')))
      if (events.length === 0) {
        if (recording.state !== 'running') break
        await once(recording, 'change', { signal })
        continue
      }
      const first = reader.next
      const text = events.map((event, index) => withId(recording, event, first + index)).join('')
      reader.next += events.length
      lastSent = performance.now()
      if (!response.write(text)) await once(response, 'drain', { signal })
    }
    const { lost, final } = recording
    if (lost && reader.next <= final) response.write(withId(recording, lost, final))
    response.end()
  } catch (error) {
    if (!signal.aborted) throw error
  } finally {
    recording.readers.delete(reader)
    clearInterval(clock)
  }
}

/** Return an event with its id; useChat needs no ids. */
function withId({ turnId, format }: Recording, event: string, number: number): string {
  return format === 'chat' ? event : `id: ${turnId}.${number}\n${event}`
}
