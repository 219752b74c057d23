// Effects as the definition of a tool of the AI SDK.

import type { Tool } from 'ai'
import type { ZodObject, z } from 'zod'

import { type Reconcile, register, type Run } from './functions.ts'

type Details = Pick<Tool, 'needsApproval' | 'toModelOutput' | 'providerOptions' | 'strict'>

/** The definition of a tool; `execute` also gets the effect. */
export interface EffectDefinition<Schema extends ZodObject> {
  /** The name of the recorded calls: the name of the tool in `TOOLS`. */
  readonly name: string
  readonly description: string
  readonly inputSchema: Schema
  readonly execute: Run<z.output<Schema>>
}

/** The definition of a tool whose outcome can be unknown. */
export interface OnceDefinition<Schema extends ZodObject> extends EffectDefinition<Schema> {
  readonly reconcile?: Reconcile
}
