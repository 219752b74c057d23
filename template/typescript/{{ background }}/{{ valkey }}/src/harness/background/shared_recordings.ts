// Recordings that all replicas share, as a capability: the events are in the session store.

import { setTimeout as sleep } from 'node:timers/promises'

import { Capability } from '../capability.ts'
import { AgentError, type Chunk } from '../contract.ts'
import { log, logUnexpected } from '../log.ts'
import type { Modules, Runtime } from '../modules.ts'
import { StoreUnavailable } from '../store/base.ts'
import { Store } from '../store/capability.ts'
import { ValkeyStore } from '../store/valkey.ts'
import { Background } from './capability.ts'
import { readChunks } from './chunks.ts'
import { BackgroundError, type Format, formatError } from './failures.ts'
import { type Recorded, Recording } from './recording.ts'
import type { Shared } from './recordings.ts'
import type { BackgroundSettings } from './settings.ts'

const LEASE_SECONDS = 4 // after which a replica that does not renew its lease has lost the turn
const RENEWAL_SECONDS = 1.5
const LOST_SECONDS = 3 // without a lease: after a pause of Valkey, the replica first renews it
const BATCH_SECONDS = 0.05 // between two writes of events
const BATCH_BYTES = 262_144
const POLL_SECONDS = { afterEvents: 0.1, otherwise: 0.25 } // between two reads
const DELIVERY_SECONDS = 2 // from the write of an event until other replicas have read it
const PAGE = 1000 // events of a read
const IDLE_SECONDS = 2 // without readers, until reading stops
const RETRY_SECONDS = 0.5
const STOP_SECONDS = 600
const MIN_SECONDS = 60 // to live, while a turn runs
const PUBLISH_SECONDS = 1 // the wait of a client until other replicas can find its turn
const CLOSE_SECONDS = 4 // for the last events, when the process ends

// Keys: `turns`, a hash of the newest turn of each actor; `events`, a stream with the id `<n>-0` for
// the event n, and `<n>-1` after the last; `lease`, which exists while a replica runs the turn;
// `stop`, which exists if a client stopped it; and `running`, a hash: the actors of running turns.
const LAST = `
local last = '0-0'
local info = redis.pcall('XINFO', 'STREAM', KEYS[2])
for i = 1, #info, 2 do
  if info[i] == 'last-generated-id' then last = info[i + 1] end
end
local number = tonumber(string.match(last, '^%d+'))
`
// KEYS: turns, events, lease, stop, running. ARGV: actor, turn and format, 1 if the turn is new,
// milliseconds to live, milliseconds of the lease or 0 after the end, number of events to keep,
// number of events already written, 1 if the earlier events were dropped, then the next events.
// Returns the number of the last event, and whether to stop.
const PUBLISH = `${LAST}
local newest = redis.call('HGET', KEYS[1], ARGV[1])
if ARGV[3] == '1' or not newest or newest == ARGV[2] then
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
  redis.call('PEXPIRE', KEYS[1], ARGV[4])
end
local stop = redis.call('EXISTS', KEYS[4])
if string.sub(last, -2) == '-1' and last ~= '0-1' then return {-1, stop} end
if number < tonumber(ARGV[7]) and ARGV[8] == '0' then return {number, stop} end
for i = 9, #ARGV do
  local next = tonumber(ARGV[7]) + i - 8
  if next > number then redis.call('XADD', KEYS[2], string.format('%.0f-0', next), 'e', ARGV[i]) end
end
number = math.max(number, tonumber(ARGV[7]) + #ARGV - 8)
redis.call('XTRIM', KEYS[2], 'MAXLEN', ARGV[6])
if ARGV[5] == '0' then
  redis.call('XADD', KEYS[2], string.format('%.0f-1', number), 'end', '1')
  redis.call('DEL', KEYS[3], KEYS[4])
  redis.call('HDEL', KEYS[5], ARGV[2])
else
  redis.call('SET', KEYS[3], '1', 'PX', ARGV[5])
  redis.call('HSET', KEYS[5], ARGV[2], ARGV[1])
  redis.call('PEXPIRE', KEYS[5], ARGV[4])
end
redis.call('PEXPIRE', KEYS[2], ARGV[4])
return {number, stop}
`
// KEYS: turns. ARGV: actor. Returns the actor's newest turn, and the number of actors with turns.
const FIND = "return {redis.call('HGET', KEYS[1], ARGV[1]), redis.call('HLEN', KEYS[1])}"
// KEYS: events, lease. ARGV: position, page. Returns the events after the position.
const READ = `
local events = redis.call('XRANGE', KEYS[1], ARGV[1] .. '-1', '+', 'COUNT', ARGV[2])
return {events, redis.call('EXISTS', KEYS[2])}
`
// KEYS: lease, events. ARGV: the event of a lost turn.
const LOSE = `${LAST}
if redis.call('EXISTS', KEYS[1]) == 1 or string.sub(last, -2) == '-1' then return 0 end
if redis.call('EXISTS', KEYS[2]) == 0 then return -1 end
redis.call('XADD', KEYS[2], string.format('%.0f-1', number), 'lost', ARGV[1])
return 1
`
// KEYS: running. ARGV: actor. Returns the ids of the actor's turns, whose replicas may have ended.
const RUNNING = `
local turns = {}
local actors = redis.call('HGETALL', KEYS[1])
for i = 1, #actors, 2 do
  if actors[i + 1] == ARGV[1] then table.insert(turns, string.match(actors[i], '^%S+')) end
end
return turns
`
// KEYS: the lease and the stop of each turn. ARGV: milliseconds to live. Returns how many run.
const STOP = `
local count = 0
for i = 1, #KEYS, 2 do
  if redis.call('EXISTS', KEYS[i]) == 1 then
    redis.call('SET', KEYS[i + 1], '1', 'PX', ARGV[1])
    count = count + 1
  end
end
return count
`
const TURNS = "return redis.call('HVALS', KEYS[1])"
const DELETE = "return redis.call('UNLINK', unpack(KEYS))"

/** An entry of a stream: its id, and the name and the value of its field. */
type Entry = [id: Buffer, fields: [name: Buffer, value: Buffer]]

/** The recording of another replica's turn. */
interface Copy {
  readonly recording: Recording
  /** Resolves when the recording has the events so far. Rejects with AgentError. */
  readonly loaded: PromiseWithResolvers<void>
  /** The `performance.now()` when it last had readers, or one looked for it. */
  usedAt: number
}

/** Keeps the events of background turns in Valkey, if it is configured. */
export class SharedRecordings extends Capability<BackgroundSettings> implements Shared {
  readonly #sessions: Store
  readonly #background: Background
  /** By turn. */
  readonly #copies = new Map<string, Copy>()
  /** The recordings of running work that writes them. */
  readonly #writers = new Map<Promise<void>, Recording | null>()
  readonly #closing = new AbortController()
  #connected: ValkeyStore | null = null
  #runtime: Runtime | null = null

  constructor(settings: BackgroundSettings, before: readonly Capability[], load: Modules) {
    super(settings, before, load)
    this.#sessions = before.find((capability) => capability instanceof Store)!
    this.#background = before.find((capability) => capability instanceof Background)!
  }

  override async open(runtime: Runtime): Promise<void> {
    const { collection, store } = this.#sessions
    const connected = store && collection ? this.#sessions.connect(collection) : null
    if (!(connected instanceof ValkeyStore)) return
    this.#connected = connected
    this.#runtime = runtime
    this.#background.shared = this
  }

  override async close(): Promise<void> {
    const written = Promise.allSettled(this.#writers.keys())
    await Promise.race([written, sleep(CLOSE_SECONDS * 1000, null, { ref: false })])
    this.#closing.abort()
    await this.#connected?.close()
  }

  override async follow(
    sessionId: string,
    actor: string | null,
    signal: AbortSignal,
  ): Promise<AsyncIterable<Chunk> | undefined> {
    const recording = this.#connected && (await this.#background.find(sessionId, actor))
    return recording?.state === 'running' ? readChunks(recording, signal) : undefined
  }

  async publish(recording: Recording): Promise<void> {
    const published = Promise.withResolvers<void>()
    recording.delivered = 0
    this.#run(this.#write(recording, published.resolve).finally(published.resolve), recording)
    const late = sleep(PUBLISH_SECONDS * 1000, undefined, { ref: false })
    await Promise.race([published.promise, late])
  }

  async newest(sessionId: string, actor: string | null): Promise<Recording | undefined> {
    const found = await this.#find(sessionId, actor)
    const local = this.#background.findHere(sessionId, actor)
    if (!found) {
      const isUnwritten = [...this.#writers.values()].some((recording) => recording === local)
      return isUnwritten ? local : undefined
    }
    if (local?.turnId === found.turnId) return local
    if (this.#isDraining) throw new AgentError('draining')
    let copy = this.#copies.get(found.turnId)
    if (!copy) {
      const recording = new Recording(found, this.settings.maxEventBytes)
      copy = { recording, loaded: Promise.withResolvers(), usedAt: performance.now() }
      this.#copies.set(found.turnId, copy)
      void this.#read(copy)
    }
    copy.usedAt = performance.now()
    await copy.loaded.promise
    return copy.recording
  }

  async stop(sessionId: string, actor: string | null): Promise<boolean> {
    const turns = await this.#evaluate(RUNNING, this.#keys(sessionId, 'running'), actor ?? '')
    const names = (turns as Buffer[]).map(String).flatMap((id) => [`lease:${id}`, `stop:${id}`])
    const keys = this.#keys(sessionId, ...names)
    return keys.length > 0 && Boolean(await this.#evaluate(STOP, keys, STOP_SECONDS * 1000))
  }

  forget(sessionId: string): void {
    this.#run(this.#forget(sessionId))
  }

  get #isDraining(): boolean {
    return this.#closing.signal.aborted || this.#runtime!.turns.isDraining
  }

  /** Run work that `close` waits for. */
  #run(work: Promise<void>, recording: Recording | null = null): void {
    const writer = work.catch(logUnexpected).finally(() => this.#writers.delete(writer))
    this.#writers.set(writer, recording)
  }

  /** Return the actor's newest turn. Throws AgentError. */
  async #find(sessionId: string, actor: string | null): Promise<Recorded | undefined> {
    const found = await this.#evaluate(FIND, this.#keys(sessionId, 'turns'), actor ?? '')
    const [newest, count] = found as [Buffer | null, number]
    if (newest) {
      const [turnId = '', format] = newest.toString().split(' ')
      return { turnId, sessionId, actor, format: format as Format }
    }
    if (count > 0) throw new AgentError('session_forbidden')
    return undefined
  }

  /** Write the events of a turn and renew its lease, until it has ended. */
  async #write(recording: Recording, published: () => void): Promise<void> {
    const { sessionId, actor, turnId, format } = recording
    const names = ['turns', `events:${turnId}`, `lease:${turnId}`, `stop:${turnId}`, 'running']
    const keys = this.#keys(sessionId, ...names)
    const { eventSeconds } = this.settings
    let written = 0
    let isNew = true
    let failedAt: number | null = null
    while (!this.#closing.signal.aborted) {
      written = Math.max(written, recording.first - 1)
      const events = recording.read(written + 1, BATCH_BYTES)!
      const number = written + events.length
      const isEnded = recording.state === 'ended' && number === recording.last
      const seconds = isEnded ? eventSeconds : Math.max(eventSeconds, MIN_SECONDS)
      const lease = isEnded ? 0 : LEASE_SECONDS * 1000
      const turn = [actor ?? '', `${turnId} ${format}`, Number(isNew), seconds * 1000, lease]
      const isOldest = written === recording.first - 1
      const positions = [number - recording.first + 1, written, Number(isOldest)]
      const reply = await this.#publish(keys, [...turn, ...positions, ...events])
      if (reply instanceof StoreUnavailable) {
        if (failedAt === null) {
          const problem = `the events of a turn wait for the store: ${reply.message}`
          log('WARNING', `session ${sessionId}: ${problem}`)
        }
        failedAt ??= performance.now()
        const isTooLate = performance.now() - failedAt > seconds * 1000
        if (isTooLate && recording.state === 'ended') return
        await sleep(RETRY_SECONDS * 1000)
        continue
      }
      const [last, isStopped] = reply
      published()
      isNew = false
      failedAt = null
      if (isStopped) this.#background.stopHere((running) => running === recording)
      if (last < 0 || (isEnded && last >= number)) return
      written = last
      setTimeout(() => void (recording.delivered = last), DELIVERY_SECONDS * 1000).unref()
      const isIdle = recording.last === written && recording.state === 'running'
      if (isIdle) await recording.wait(RENEWAL_SECONDS)
      await sleep(BATCH_SECONDS * 1000)
    }
  }

  /** Return the number of the last written event and whether to stop, or the error. */
  async #publish(
    keys: readonly string[],
    values: (string | number)[],
  ): Promise<[last: number, isStopped: number] | StoreUnavailable> {
    try {
      return (await this.#connected!.evaluate(PUBLISH, keys, ...values)) as [number, number]
    } catch (error) {
      if (!(error instanceof StoreUnavailable)) throw error
      return error
    }
  }

  /** Copy the events of another replica's turn while it has readers. */
  async #read(copy: Copy): Promise<void> {
    const { recording, loaded } = copy
    const { sessionId, turnId } = recording
    const keys = this.#keys(sessionId, `events:${turnId}`, `lease:${turnId}`)
    let leasedAt = performance.now()
    let isLoaded = false
    try {
      const isUsed = () => performance.now() - copy.usedAt < IDLE_SECONDS * 1000
      while (recording.state === 'running' && isUsed()) {
        const [events, hasLease] = await this.#readPage(keys, recording.last).catch((error) => {
          if (!isLoaded) throw error
          return [[], true] as const // without an answer, the turn is not lost
        })
        addTo(recording, events)
        const now = performance.now()
        if (recording.readers.size > 0 || !isLoaded) copy.usedAt = now
        if (hasLease || events.length > 0) leasedAt = now
        if (events.length === PAGE) continue
        isLoaded = true
        loaded.resolve()
        if (this.#isDraining) return
        if (now - leasedAt > LOST_SECONDS * 1000) await this.#lose(keys, recording)
        const pause = events.length > 0 ? POLL_SECONDS.afterEvents : POLL_SECONDS.otherwise
        await sleep(pause * 1000, null, { ref: false })
      }
    } catch (error) {
      loaded.reject(error)
    } finally {
      this.#copies.delete(turnId)
      loaded.resolve()
      if (recording.state === 'running') recording.end('closed')
    }
  }

  /** Return the events after this number, and whether a replica runs the turn. */
  async #readPage(
    keys: readonly string[],
    number: number,
  ): Promise<readonly [events: readonly Entry[], hasLease: boolean]> {
    const reply = await this.#evaluate(READ, keys, number, PAGE)
    const [events, leases] = reply as [Entry[], number]
    return [events, leases > 0]
  }

  /** End a turn whose replica has ended, once for the readers of all replicas. */
  async #lose([events = '', lease = '']: readonly string[], recording: Recording): Promise<void> {
    const event = formatError(recording.format, new BackgroundError('turn_lost'))
    const result = await this.#evaluate(LOSE, [lease, events], event).catch(() => 0)
    if (Number(result) >= 0) return
    recording.lose(event) // the events have expired
  }

  /** Delete the events of a session, after the last events of its ended turns are written. */
  async #forget(sessionId: string): Promise<void> {
    const writers = [...this.#writers].filter(([, recording]) => {
      return recording?.sessionId === sessionId && recording.state === 'ended'
    })
    await Promise.allSettled(writers.map(([writer]) => writer))
    const keys = this.#keys(sessionId, 'turns')
    try {
      const turns = (await this.#evaluate(TURNS, keys)) as Buffer[]
      const names = turns.map((turn) => `events:${turn.toString().split(' ')[0]}`)
      await this.#evaluate(DELETE, [...keys, ...this.#keys(sessionId, ...names)])
    } catch (error) {
      if (!(error instanceof AgentError)) throw error
      log('WARNING', `session ${sessionId}: its events were not deleted: ${error.detail}`)
    }
  }

  #keys(sessionId: string, ...names: string[]): string[] {
    return this.#connected!.keysBeside(sessionId, ...names)
  }

  /** Return the result of a script. Throws AgentError `store_unavailable`. */
  async #evaluate(
    script: string,
    keys: readonly string[],
    ...values: (string | number)[]
  ): Promise<unknown> {
    try {
      return await this.#connected!.evaluate(script, keys, ...values)
    } catch (error) {
      if (!(error instanceof StoreUnavailable)) throw error
      throw new AgentError('store_unavailable', '', error.message)
    }
  }
}

/** Add the entries of a stream to the recording. */
function addTo(recording: Recording, entries: readonly Entry[]): void {
  for (const [id, [name, value]] of entries) {
    const [number, kind] = id.toString().split('-').map(Number) as [number, number]
    if (kind === 1 && name.toString() === 'lost') return recording.lose(value.toString())
    if (kind === 1) return recording.end()
    if (number > recording.last + 1) recording.skipTo(number)
    recording.append(value.toString())
  }
}
