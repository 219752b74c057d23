// Effects as the definition of AI SDK tools.

import type { z, ZodObject } from 'zod'

import { type Effect, type Kind, type Reconcile, register } from './functions.ts'

/** The definition; `execute` also gets the effect. */
export interface EffectDefinition<Schema extends ZodObject, Output> {
  /** The name of the tool in `TOOLS`, and of its recorded calls. */
  readonly name: string
  readonly description: string
  readonly inputSchema: Schema
  readonly execute: (input: z.output<Schema>, effect: Effect) => Output | Promise<Output>
}

/** The definition, and the function that asks the receiver about an earlier call. */
export interface OnceDefinition<Schema extends ZodObject, Output> extends EffectDefinition<
  Schema,
  Output
> {
  readonly reconcile?: Reconcile
}

/** The definition, for `tool`. */
export interface ToolDefinition<Schema extends ZodObject, Output> {
  readonly description: string
  readonly inputSchema: Schema
  readonly execute: (input: z.output<Schema>) => Promise<Output>
}

/**
 * Run the tool after the turn is saved, with retries; the model gets "scheduled".
 *
 * Pass the result to `tool`. Throw Rejected to fail without a retry. Throws CommandError for a
 * function that cannot be an effect.
 */
export function afterCommit<Schema extends ZodObject, Output>(
  definition: EffectDefinition<Schema, Output>,
): ToolDefinition<Schema, string> {
  return make(definition, 'after_commit')
}

/**
 * Run the tool in the turn; a repetition of the turn gets the recorded result.
 *
 * Pass the result to `tool`. Throw Rejected if the receiver rejected the call. Any other error
 * means that the outcome is unknown: then `reconcile(key)` asks the receiver. It returns the
 * result, or null if the call had no effect and never will have. Throws CommandError for a function
 * that cannot be an effect.
 */
export function once<Schema extends ZodObject, Output>(
  definition: OnceDefinition<Schema, Output>,
): ToolDefinition<Schema, Output> {
  return make(definition, 'once')
}

function make<Schema extends ZodObject, Result>(
  definition: OnceDefinition<Schema, unknown>,
  kind: Kind,
): ToolDefinition<Schema, Result> {
  const { name, description, inputSchema, execute: run, reconcile } = definition
  const execute = register({ name, kind, schema: inputSchema, run, reconcile })
  return { description, inputSchema, execute } as ToolDefinition<Schema, Result>
}
