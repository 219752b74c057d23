// The records of effects in a session: `app_data.records.effects` of its snapshot.
//
// All languages and versions read this format. A scheduled call is removed when a turn has shown
// its result. A call of `once` stays until other calls need its room.

import { createHash, randomUUID } from 'node:crypto'
import { isDeepStrictEqual } from 'node:util'

import { z } from 'zod'

import type { Records } from '../sessions/sessions.ts'
import { canonical } from './functions.ts'

/** The name of the effects in the records of a session. */
export const NAME = 'effects'
/** The maximum difference between the clocks of two processes. */
export const SKEW_SECONDS = 5

/** A recorded call. Times are Unix seconds. */
const CALL = z.looseObject({
  key: z.string(),
  kind: z.enum(['after_commit', 'once']),
  tool: z.string(),
  arguments: z.record(z.string(), z.unknown()), // empty when the call is done
  digest: z.string(), // of the tool and the arguments
  turn: z.int(),
  identity: z.string(), // of the turn: "key " and its idempotency key, or "turn " and its number
  adopters: z.array(z.string()).default([]), // identities of later turns that got the outcome
  wanted: z.boolean().default(false), // whether the next identical call gets the outcome
  status: z.enum(['scheduled', 'started', 'unknown', 'done', 'failed']),
  at: z.number(), // when it was scheduled or started
  tried: z.number().default(0), // the first try of a scheduled call, if it failed
  result: z.unknown().default(null), // JSON; the reason if it failed
  owner: z.string().default(''), // the process that runs a started call
  until: z.number().default(0), // the end of its time limit
})
export type Call = z.infer<typeof CALL>
export type Status = Call['status']

/** The default values, which are not saved. */
const DEFAULTS: Record<string, unknown> = {
  calls: [],
  adopters: [],
  wanted: false,
  tried: 0,
  result: null,
  owner: '',
  until: 0,
  open: 0,
}

const SECTION = z.looseObject({
  id: z.string().default(newId), // part of each key of `once`
  calls: z.array(CALL).default([]),
  owner: z.string().default(''),
  until: z.number().default(0),
  open: z.number().default(0), // the number of scheduled calls
})

/** The records of a session. `owner` may run the scheduled calls until the time `until`. */
export class Section {
  readonly fields: z.infer<typeof SECTION>

  /** Read the effects in the records of a session. */
  constructor(records: Records) {
    this.fields = SECTION.parse(records[NAME] ?? {})
  }

  get calls(): Call[] {
    return this.fields.calls
  }

  /** The calls to run, in order. */
  get scheduled(): Call[] {
    return this.calls.filter(({ status }) => status === 'scheduled')
  }

  /** Return the call with a key. */
  find(key: string): Call | undefined {
    return this.calls.find((call) => call.key === key)
  }

  /** Add a call, or replace the call with its key. */
  put(call: Call): void {
    const at = this.calls.findIndex(({ key }) => key === call.key)
    if (at < 0) this.calls.push(call)
    else this.calls[at] = call
  }

  /** Remove the calls with these keys. */
  remove(keys: ReadonlySet<string>): void {
    this.fields.calls = this.calls.filter(({ key }) => !keys.has(key))
  }

  /** Record that a turn ends with the outcomes of the calls with the keys `used`. */
  commit(identity: string, used: readonly string[]): void {
    for (const call of this.calls.filter(({ kind }) => kind === 'once')) {
      if (isOpen(call)) {
        call.wanted = true
      } else if (used.includes(call.key)) {
        call.wanted = false
        adopt(call, identity)
      }
    }
  }

  /** Whether another process may be running the scheduled calls. */
  isOfOther(owner: string, now: number): boolean {
    const { fields } = this
    return fields.owner !== '' && fields.owner !== owner && now < fields.until + SKEW_SECONDS
  }

  /**
   * Drop results of `once`, the oldest first, until the limits hold; return whether they do.
   *
   * Only calls with a result may be dropped, except those with the keys `kept`. Results that a
   * later call gets are dropped last.
   */
  makeRoom(count: number, size: number, kept: ReadonlySet<string>): boolean {
    let excess = this.calls.reduce((sum, call) => sum + sizeOf(call), 0) - size
    let number = this.calls.length - count
    const dropped = new Set<string>()
    const calls = this.calls.toSorted((a, b) => Number(a.wanted) - Number(b.wanted))
    for (const call of calls) {
      if (excess <= 0 && number <= 0) break
      if (call.kind !== 'once' || isOpen(call) || kept.has(call.key)) continue
      dropped.add(call.key)
      excess -= sizeOf(call)
      number--
    }
    this.remove(dropped)
    return excess <= 0 && number <= 0
  }

  /** Return the fields to save. */
  toJSON(): object {
    return withoutDefaults({ ...this.fields, calls: this.calls.map(withoutDefaults) })
  }
}

/** Return a recorded call as read from JSON. */
export function readCall(value: unknown): Call {
  return CALL.parse(value)
}

/** Whether a call is not final. */
export function isOpen({ status }: Call): boolean {
  return status !== 'done' && status !== 'failed'
}

/** Whether the turn with this identity has made a call, or has got its outcome. */
export function isOf(call: Call, identity: string): boolean {
  return call.identity === identity || call.adopters.includes(identity)
}

/** Record that the turn with this identity gets the outcome of a call. */
export function adopt(call: Call, identity: string): void {
  if (!isOf(call, identity)) call.adopters = [...call.adopters, identity]
}

/** Return the number of bytes that count against MAX_EFFECT_BYTES. */
function sizeOf(call: Call): number {
  return Buffer.byteLength(canonical([call.arguments, call.result]))
}

function withoutDefaults(fields: object): object {
  const isSet = ([name, value]: [string, unknown]) => !isDeepStrictEqual(value, DEFAULTS[name])
  return Object.fromEntries(Object.entries(fields).filter(isSet))
}

/** Return a random id of 32 hex digits. */
export function newId(): string {
  return randomUUID().replaceAll('-', '')
}

/** Return the digest of a call with canonical arguments. */
export function digestOf(tool: string, args: string): string {
  return sha256(`${tool}\n${args}`)
}

/** Return the key of a new call of `once`: the same in each try of a turn, if it is free. */
export function newKey(
  { calls, fields }: Section,
  identity: string,
  digest: string,
  used: readonly string[],
): string {
  const taken = new Set([...used, ...calls.map(({ key }) => key)])
  for (let ordinal = 0; ; ordinal++) {
    const key = sha256(canonical([fields.id, identity, digest, ordinal])).slice(0, 32)
    if (!taken.has(key)) return key
  }
}

function sha256(text: string): string {
  return createHash('sha256').update(text).digest('hex')
}
