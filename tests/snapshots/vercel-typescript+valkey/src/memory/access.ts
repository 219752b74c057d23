// How an endpoint that keeps a custom collection is called: its transport and credentials.
//
// What concerns more than one field stands in `lint_access`.

import { z } from 'zod'

import { ENV, matches, milliseconds, region, whole } from './values.ts'

const ARN = 'arn:aws[a-z-]{0,10}:lambda:[a-z0-9-]{1,32}:[0-9]{1,20}:function:'
const FUNCTION = '[A-Za-z0-9_-]{1,64}(:[A-Za-z0-9$_-]{1,128})?'
const HOST = '(\\[[0-9A-Fa-f:.]{2,45}\\]|[A-Za-z0-9._-]{1,253})(:[0-9]{1,5})?'
const URL = `https?://([A-Za-z0-9._~!$&'()*+,;=%:-]*@)?${HOST}(/[A-Za-z0-9._~:@!$&'()*+,;=%-]*)*`

const SCHEMES = [
  'none',
  'api-key',
  'bearer-token',
  'iam-role',
  'oauth2',
  'service-account',
] as const
const SOURCES = ['env', 'aws_secrets_manager', 'gcp_secret_manager', 'azure_key_vault'] as const

const retryPolicy = z.strictObject({
  max_attempts: whole(1, 100).default(1),
  on_status: z.array(whole(100, 599)).default([]),
  backoff_ms: milliseconds.default(100),
})

/** How a caller proves who it is; `lint_access` knows which scheme and source take which. */
export const credentials = z.object({
  scheme: z.enum(SCHEMES),
  header: matches("[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}").optional(),
  source: z.enum(SOURCES).optional(),
  name: matches('[A-Za-z_][A-Za-z0-9_]{0,127}').optional(),
  secret_id: matches('[A-Za-z0-9/_+=.@:!-]{1,512}').optional(),
  region: region.optional(),
  key: matches('[!-~]{1,128}').optional(),
})

const common = {
  timeout_ms: whole(1, 900_000).default(3000),
  retry_policy: retryPolicy.default(retryPolicy.parse({})),
  credentials,
}

export const restApi = z.strictObject({
  type: z.literal('rest-api'),
  ...common,
  base_url: matches(`(?=.{1,2048}$)(${ENV}|${URL})`),
})

export const lambda = z.strictObject({
  type: z.literal('lambda'),
  ...common,
  function_arn: matches(`${ENV}|${ARN}${FUNCTION}`).optional(),
  provider: z.literal('aws').optional(),
  function_id: matches(`${ENV}|(${ARN})?${FUNCTION}`).optional(),
  invocation_type: z.literal('RequestResponse').default('RequestResponse'),
  payload_format: z.literal('json').default('json'),
})
