// Fields and checks of a collection that stores sessions at your own endpoint.

import { z } from 'zod'

import { isPlainHttp } from '../settings.ts'
import { forms, missingAddress, type SecretRef, text, whole } from './fields.ts'
import type { Document, Findings } from './reader.ts'

const ARN = 'arn:aws[a-z-]{0,10}:lambda:[a-z0-9-]{1,32}:[0-9]{1,20}:function:'
const FUNCTION = '[A-Za-z0-9_-]{1,64}(:[A-Za-z0-9$_-]{1,128})?'
const HOST = '(\\[[0-9A-Fa-f:.]{2,45}\\]|[A-Za-z0-9._-]{1,253})(:[0-9]{1,5})?'
const BASE_URL = `https?://${HOST}(/[A-Za-z0-9._~:@!$&'()*+,;=%-]*)*(?<!/)`

const TRANSPORT = ['backend', 'transport']
const CREDENTIALS = [...TRANSPORT, 'credentials']
// Allowed fields by source; the first is required.
const SOURCE_FIELDS = { env: ['name', 'key'], aws_secrets_manager: ['secret_id', 'region', 'key'] }

const RetryPolicy = z.strictObject({
  max_attempts: whole(1, 100).default(1),
  on_status: z.array(whole(100, 599)).default([]),
  backoff_ms: whole(0, 900_000).default(100),
})

/** The authentication of requests; `checkCredentials` checks the fields of each scheme. */
const Credentials = z.strictObject({
  scheme: z.enum(['none', 'api-key', 'bearer-token', 'iam-role']),
  header: text("[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}", 'the name of a header').optional(),
  source: z.enum(['env', 'aws_secrets_manager']).optional(),
  name: text('[A-Za-z_][A-Za-z0-9_]{0,127}', 'the name of a variable').optional(),
  secret_id: text('[A-Za-z0-9/_+=.@:!-]{1,512}', 'the name or ARN of a secret').optional(),
  region: forms.region.optional(),
  key: text('[!-~]{1,128}', 'the name of a field in a JSON secret').optional(),
})

const calls = {
  timeout_ms: whole(1, 900_000).default(3000),
  retry_policy: RetryPolicy.prefault({}),
  credentials: Credentials,
}

export const RestTransport = z.strictObject({
  type: z.literal('rest-api'),
  ...calls,
  base_url: forms.address(
    `(?=.{1,2048}$)${BASE_URL}`,
    'an http(s) URL without user, query, fragment and final slash',
  ),
})

export const LambdaTransport = z.strictObject({
  type: z.literal('lambda'),
  ...calls,
  function_arn: forms.address(`${ARN}${FUNCTION}`, 'the ARN of a function').optional(),
  provider: z.literal('aws').optional(),
  function_id: forms.address(`(${ARN})?${FUNCTION}`, 'the name or ARN of a function').optional(),
  invocation_type: z.literal('RequestResponse').default('RequestResponse'),
  payload_format: z.literal('json').default('json'),
})

export const CustomConfig = z.strictObject({
  type: z.literal('custom'),
  transport: z.discriminatedUnion('type', [RestTransport, LambdaTransport]).optional(),
})

export type RestTransport = z.output<typeof RestTransport>
export type LambdaTransport = z.output<typeof LambdaTransport>
export type CustomConfig = z.output<typeof CustomConfig>
type Transport = RestTransport | LambdaTransport

/** Return the address itself, or the value of the variable in `env:NAME`. */
export function resolve(reference: string): string {
  return reference.startsWith('env:') ? (process.env[reference.slice(4)]?.trim() ?? '') : reference
}

/** Return the http or https URL of a service, or null. */
export function serviceUrl(address: string): URL | null {
  const url = URL.parse(address)
  return url && /^https?:$/.test(url.protocol) && !url.search && !url.hash ? url : null
}

const IS_URL = {
  expected: 'the http:// or https:// address of a service',
  accepts: (value: string) => serviceUrl(value) !== null,
}

export const backend = { secretRefs, backendFindings }

/** Return the references to resolve before the collection is used. */
function secretRefs({ transport }: CustomConfig): SecretRef[] {
  if (!transport) return []
  const refs: SecretRef[] = []
  for (const [name, reference = ''] of Object.entries(addressesOf(transport))) {
    const ref = { reference, key: null, region: null, path: [...TRANSPORT, name] }
    if (reference.startsWith('env:')) refs.push({ ...ref, ...(name === 'base_url' && IS_URL) })
  }
  const { source, name, secret_id: id, key = null, region = null } = transport.credentials
  const isVariable = source === 'env'
  const reference = isVariable ? name && `env:${name}` : id
  const path = [...CREDENTIALS, isVariable ? 'name' : 'secret_id']
  if (source && reference) refs.push({ reference, key, region, path })
  return refs
}

/** Return the address of the endpoint or function, by field. */
function addressesOf(transport: Transport) {
  return transport.type === 'rest-api'
    ? { base_url: transport.base_url }
    : { function_arn: transport.function_arn, function_id: transport.function_id }
}

/** Check combinations of fields. */
function* backendFindings(
  document: Document,
  { transport }: CustomConfig,
  status: string,
  lifetime: string,
): Findings {
  if (lifetime === 'session') {
    const message = 'custom does not support lifetime session: use valkey or s3.'
    yield document.finding('AML-E043', message, 'backend', 'type')
  }
  if (!transport) {
    yield* missingAddress(document, 'transport', status)
    return
  }
  for (const [name, address = 'env:'] of Object.entries(addressesOf(transport))) {
    if (address.startsWith('env:')) continue
    const message = 'This address is the same in all environments: use env:NAME.'
    yield document.finding('AML-W224', message, ...TRANSPORT, name)
  }
  if (transport.type === 'lambda') yield* checkFunctionName(document, transport)
  else if (isExposed(transport)) {
    const message = 'Credentials travel over plain http to another host: use https.'
    yield document.finding('AML-W226', message, ...TRANSPORT, 'base_url')
  }
  yield* checkCredentials(document, transport)
}

/** Return whether credentials travel over plain http to another host. */
function isExposed({ base_url: reference, credentials }: RestTransport): boolean {
  const address = resolve(reference)
  return isPlainHttp(address) && (credentials.scheme !== 'none' || address.includes('@'))
}

function* checkFunctionName(document: Document, transport: LambdaTransport): Findings {
  const { function_arn: arn, provider, function_id: id } = transport
  const form = 'function_arn, or provider and function_id'
  if (!arn && !(provider && id)) {
    yield document.finding('AML-E0B1', `The function is not named: add ${form}.`, ...TRANSPORT)
  } else if (arn && (provider || id)) {
    const message = `The function is named twice: keep either ${form}.`
    yield document.finding('AML-E0B2', message, ...TRANSPORT)
  }
}

function* checkCredentials(document: Document, transport: Transport): Findings {
  const { type, credentials } = transport
  const { scheme, source } = credentials
  if ((scheme === 'iam-role') !== (type === 'lambda')) {
    const hint = type === 'lambda' ? 'iam-role' : 'none, api-key or bearer-token'
    const message = `A ${type} transport does not support scheme ${scheme}: use ${hint}.`
    yield document.finding('AML-E098', message, ...CREDENTIALS, 'scheme')
    return
  }
  const ofScheme =
    scheme === 'api-key' ? ['header', 'source'] : scheme === 'bearer-token' ? ['source'] : []
  const ofSource = ofScheme.includes('source') && source ? SOURCE_FIELDS[source] : []
  for (const field of [...ofScheme, ...ofSource.slice(0, 1)]) {
    if (field in credentials) continue
    yield document.finding('AML-E09C', `The credentials lack ${field}.`, ...CREDENTIALS, field)
  }
  if (ofScheme.includes('source') && !source) return // the other fields depend on the source
  for (const field of Object.keys(credentials)) {
    if (['scheme', ...ofScheme, ...ofSource].includes(field)) continue
    const message = `${field} does not apply to this scheme and source: delete it.`
    yield document.finding('AML-E0A5', message, ...CREDENTIALS, field)
  }
}
