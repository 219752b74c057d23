// Effects as the config of Strands tools.

import type { JSONValue } from '@strands-agents/sdk'
import type { z, ZodObject } from 'zod'

import { type Effect, type Kind, type Reconcile, register } from './functions.ts'

/** The config; `callback` also gets the effect. */
export interface EffectConfig<Schema extends ZodObject, Output extends JSONValue> {
  /** The name of the tool, and of its recorded calls. */
  readonly name: string
  readonly description: string
  readonly inputSchema: Schema
  readonly callback: (input: z.output<Schema>, effect: Effect) => Output | Promise<Output>
}

/** The config, and the function that asks the receiver about an earlier call. */
export interface OnceConfig<
  Schema extends ZodObject,
  Output extends JSONValue,
> extends EffectConfig<Schema, Output> {
  readonly reconcile?: Reconcile
}

/** The config, for `tool`. */
export interface ToolConfig<Schema extends ZodObject, Output extends JSONValue> {
  readonly name: string
  readonly description: string
  readonly inputSchema: Schema
  readonly callback: (input: z.output<Schema>) => Promise<Output>
}

/**
 * Run the tool after the turn is saved, with retries; the model gets "scheduled".
 *
 * Pass the result to `tool`. Throw Rejected to fail without a retry. Throws CommandError for a
 * function that cannot be an effect.
 */
export function afterCommit<Schema extends ZodObject, Output extends JSONValue>(
  config: EffectConfig<Schema, Output>,
): ToolConfig<Schema, string> {
  return make(config, 'after_commit')
}

/**
 * Run the tool in the turn; a repetition of the turn gets the recorded result.
 *
 * Pass the result to `tool`. Throw Rejected if the receiver rejected the call. Any other error
 * means that the outcome is unknown: then `reconcile(key)` asks the receiver. It returns the
 * result, or null if the call had no effect and never will have. Throws CommandError for a function
 * that cannot be an effect.
 */
export function once<Schema extends ZodObject, Output extends JSONValue>(
  config: OnceConfig<Schema, Output>,
): ToolConfig<Schema, Output> {
  return make(config, 'once')
}

function make<Schema extends ZodObject, Result extends JSONValue>(
  config: OnceConfig<Schema, JSONValue>,
  kind: Kind,
): ToolConfig<Schema, Result> {
  const { name, description, inputSchema, callback: run, reconcile } = config
  const callback = register({ name, kind, schema: inputSchema, run, reconcile })
  return { name, description, inputSchema, callback } as ToolConfig<Schema, Result>
}
