// The fields of collection, agent and grant files: their types, defaults and limits.
//
// Each backend's module has its fields; `check` has the rules that span several files.

import { z } from 'zod'

import { isBlank } from '../contract.ts'
import { BackendConfig } from './backends.ts'
import { text, whole } from './fields.ts'

const prose = z
  .string()
  .refine((value) => !isBlank(value), 'Input should be a text that is not blank')
const agentId = text('[a-z0-9_-]{1,64}', '1 to 64 characters of a-z 0-9 _ -')
const collectionId = text('[a-z0-9_-]{3,64}', '3 to 64 characters of a-z 0-9 _ -')
const NUMBER = '(0|[1-9][0-9]{0,8})'
const LABEL = '(0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*)'
const BUILD = '[0-9A-Za-z-]+(\\.[0-9A-Za-z-]+)*'
const version = text(
  `${NUMBER}\\.${NUMBER}\\.${NUMBER}(-${LABEL}(\\.${LABEL})*)?(\\+${BUILD})?`,
  'a semantic version such as 1.0.0',
)
const date = z.iso.date('Input should be a date such as 2026-04-01')
const lifetime = z.enum(['session', 'project', 'user'])

const Meta = z.strictObject({
  name: prose,
  description: prose,
  owner: prose,
  tags: z.array(prose).default([]),
  last_updated: date.optional(),
})

export const Collection = z.strictObject({
  spec_version: z.literal('1.2'),
  collection_id: collectionId,
  version,
  status: z.enum(['draft', 'active', 'deprecated', 'disabled']),
  meta: Meta,
  scope: z.strictObject({ lifetime }),
  backend: BackendConfig,
  writeback: z.strictObject({ enabled: z.boolean() }),
})

/** The parts of earlier turns that a model sees; names come from the agent definition. */
export const State = z.strictObject({
  session_history: z.enum(['ephemeral', 'session']).default('session'),
  /** Tool calls and their results. */
  working_state: z.enum(['ephemeral', 'session']).default('session'),
  /** The working state of earlier turns. */
  scratchpad_visible_to_model: z.boolean().default(true),
  max_state_tokens: whole(1, 1_000_000_000).optional(),
})

/** Whether this project supports a field of `state`; other tools may define more. */
export function isKnown(name: string, value: unknown): boolean {
  return State.safeParse({ [name]: value }).success
}

function knownFields(state: unknown): unknown {
  if (typeof state !== 'object' || state === null || Array.isArray(state)) return state
  return Object.fromEntries(Object.entries(state).filter(([name, value]) => isKnown(name, value)))
}

/** The model of agents/<agent_id>.agent.md; it ignores the fields of other tools. */
export const Agent = z.object({
  agent_id: agentId,
  memory: z.object({
    mode: z.enum(['none', ...lifetime.options]),
    read_collections: z.array(z.string()).default([]),
    write_collections: z.array(z.string()).default([]),
  }),
  state: z.preprocess(knownFields, State).default(State.parse({})),
})

/** The model of iam/<agent_id>.iam.md. Without a grant, access is denied. */
export const Grants = z.object({
  agent_id: agentId,
  collections: z
    .array(z.object({ ref: collectionId, access: z.enum(['read', 'write', 'read-write', 'deny']) }))
    .default([]),
})

export type Collection = z.output<typeof Collection>
export type State = z.output<typeof State>
export type Agent = z.output<typeof Agent>
export type Grants = z.output<typeof Grants>
