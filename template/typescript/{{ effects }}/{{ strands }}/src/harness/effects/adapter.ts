// Effects as the config of a Strands tool.

import type { ZodObject, z } from 'zod'

import { type Reconcile, register, type Run } from './functions.ts'

/** The config of a tool; `callback` also gets the effect. */
export interface EffectConfig<Schema extends ZodObject> {
  /** The name of the tool, and of its recorded calls. */
  readonly name: string
  readonly description: string
  readonly inputSchema: Schema
  readonly callback: Run<z.output<Schema>>
}

/** The config of a tool whose outcome can be unknown. */
export interface OnceConfig<Schema extends ZodObject> extends EffectConfig<Schema> {
  readonly reconcile?: Reconcile
}

/** The config for `tool`. */
interface ToolConfig<Schema extends ZodObject> {
  readonly name: string
  readonly description: string
  readonly inputSchema: Schema
  readonly callback: (input: z.output<Schema>) => Promise<never>
}

/**
 * Run the tool after the turn is saved, with retries; the model gets "scheduled".
 *
 * Pass the result to `tool`. Throw Rejected in `callback` to fail without a retry. Throws
 * CommandError for a config that cannot be an effect.
 */
export function afterCommit<Schema extends ZodObject>(
  config: EffectConfig<Schema>,
): ToolConfig<Schema> {
  return configOf(config, 'after_commit')
}

/**
 * Run the tool in the turn; a repetition of the turn gets the recorded result.
 *
 * Pass the result to `tool`. Throw Rejected in `callback` if the receiver rejected the call: any
 * other error means that the outcome is unknown. Then `reconcile(key)` asks the receiver: it returns
 * the result, or null if the call had no effect and never will have, or throws. Throws CommandError
 * for a config that cannot be an effect.
 */
export function once<Schema extends ZodObject>(config: OnceConfig<Schema>): ToolConfig<Schema> {
  return configOf(config, 'once')
}

function configOf<Schema extends ZodObject>(
  { callback: run, reconcile, ...config }: OnceConfig<Schema>,
  kind: 'after_commit' | 'once',
): ToolConfig<Schema> {
  const { name, inputSchema: schema } = config
  const callback = register({ name, kind, schema, run, reconcile })
  return { ...config, callback: callback as (input: unknown) => Promise<never> }
}
