// The functions of effects, by name.

import { types } from 'node:util'

import type { ZodObject } from 'zod'

import { RUNNING, type Turn } from '../contract.ts'
import { CommandError } from '../findings.ts'
import type { TurnCalls } from './calls.ts'

/** A call of an effect. */
export interface Effect {
  /** Send this key to the receiver: each try of the call has the same key. */
  readonly key: string
  readonly sessionId: string
  readonly actor: string | null
  /** The number of the turn. */
  readonly turn: number
  /** Aborts at the time limit of the call: pass it to your requests. */
  readonly signal: AbortSignal
}

/** The receiver rejected the call, so it had no effect. The model gets the message. */
export class Rejected extends Error {
  override readonly name = 'Rejected'
}

export type Kind = 'after_commit' | 'once'

/** Returns the result of the call with this key; null: it had no effect and never will. */
export type Reconcile = (key: string) => Promise<unknown>

type Run = (input: never, effect: Effect) => unknown

interface EffectFields {
  readonly name: string
  readonly kind: Kind
  readonly schema: ZodObject
  readonly run: Run
  readonly reconcile?: Reconcile | undefined
}

/** A function of an effect and its parameters. */
export class EffectFunction {
  readonly name: string
  readonly kind: Kind
  readonly reconcile: Reconcile | undefined
  readonly #schema: ZodObject
  readonly #run: Run

  /** Throws CommandError for a function that cannot be an effect. */
  constructor({ name, kind, schema, run, reconcile }: EffectFields) {
    if (types.isGeneratorFunction(run)) {
      throw new CommandError(`${name} is a generator: define it as an async function.`)
    }
    this.name = name
    this.kind = kind
    this.reconcile = reconcile
    this.#schema = schema
    this.#run = run
  }

  /** Return the arguments as canonical JSON. Throws TypeError if that loses something. */
  async serialize(input: unknown): Promise<string> {
    try {
      const text = canonical(input)
      if (canonical(await this.parse(JSON.parse(text))) === text) return text
    } catch {
      // for example, a cycle
    }
    throw new TypeError(`The arguments of ${this.name} cannot be saved as JSON, so it did not run.`)
  }

  /** Return recorded arguments for a call, or null if the parameters have changed. */
  async parse(recorded: object): Promise<object | null> {
    const { data } = await this.#schema.safeParseAsync(recorded)
    const isKnown = (name: string) => Object.hasOwn(data ?? {}, name)
    return data && Object.keys(recorded).every(isKnown) ? data : null
  }

  /** Call the function with recorded arguments. */
  async run(effect: Effect, recorded: object): Promise<unknown> {
    const input = await this.parse(recorded)
    if (input === null) throw new TypeError(`The parameters of ${this.name} have changed.`)
    return await this.#run(input as never, effect)
  }
}

export const FUNCTIONS = new Map<string, EffectFunction>()
/** The calls of the running turns. */
export const IN_TURN = new WeakMap<Turn, TurnCalls>()

/**
 * Register a function, and return the function that the framework calls instead.
 *
 * Throws CommandError for a function that cannot be an effect.
 */
export function register(fields: EffectFields): (input: unknown) => Promise<unknown> {
  const effect = new EffectFunction(fields)
  const { name, kind } = effect
  if (FUNCTIONS.has(name)) {
    throw new CommandError(`Two effects have the name ${name}: rename one of them.`)
  }
  FUNCTIONS.set(name, effect)
  return async (input) => {
    const turn = RUNNING.getStore()
    const calls = turn && IN_TURN.get(turn)
    if (!calls) throw new Error(`${name} was called outside a turn: let the model call it.`)
    const args = await effect.serialize(input)
    return kind === 'once' ? calls.runOnce(effect, args) : calls.schedule(effect, args)
  }
}

/** Return JSON with sorted names. Throws TypeError for a value that is not JSON. */
export function canonical(value: unknown): string {
  return JSON.stringify(value ?? null, (_name, part) => {
    if (typeof part === 'number' && !Number.isFinite(part)) throw new TypeError('not a JSON number')
    if (typeof part !== 'object' || part === null || Array.isArray(part)) return part
    const sorted = Object.entries(part).toSorted(([a], [b]) => (a < b ? -1 : 1))
    return Object.fromEntries(sorted)
  })
}
