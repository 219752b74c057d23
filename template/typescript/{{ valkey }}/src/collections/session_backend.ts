// Sessions in Valkey or Redis: what their collection declares.

import { z } from 'zod'

import { missingAddress, reference, type SecretRef, text, whole } from './fields.ts'
import type { Document, Findings } from './reader.ts'

export const ValkeyConfig = z.strictObject({
  type: z.literal('valkey'),
  endpoint_secret: reference.optional(),
  port: whole(1, 65_535).default(6379),
  key_prefix: text(
    '[A-Za-z0-9_.:/-]{1,128}',
    '1 to 128 characters of A-Z a-z 0-9 _ . : / -',
  ).default('session'),
  ttl_seconds: whole(1, 2_147_483_647).optional(),
})
export type ValkeyConfig = z.output<typeof ValkeyConfig>

/** Return the references that are read before the collection is used. */
export function secretRefs({ endpoint_secret: reference }: ValkeyConfig): SecretRef[] {
  const path = ['backend', 'endpoint_secret']
  return reference ? [{ reference, key: null, region: null, path }] : []
}

/** Check what concerns more than one field. */
export function* backendFindings(
  document: Document,
  config: ValkeyConfig,
  status: string,
  lifetime: string,
): Findings {
  if (!config.endpoint_secret) yield* missingAddress(document, 'endpoint_secret', status)
  if (lifetime !== 'session') {
    const hint = `use custom or agentcore_memory for lifetime ${lifetime}`
    const message = `valkey stores only lifetime session: ${hint}.`
    yield document.finding('AML-E042', message, 'backend', 'type')
  } else if (config.ttl_seconds === undefined) {
    const message = 'backend.ttl_seconds is missing: sessions never expire.'
    yield document.finding('AML-W206', message, 'backend', 'ttl_seconds')
  }
}
