// What does not fit together in the transport of a custom collection and its credentials.

import { credentials } from './access.ts'
import type { Document } from './frontmatter.ts'
import { at, type Findings } from './rules.ts'

const TRANSPORT = ['backend', 'transport']
const CREDENTIALS = [...TRANSPORT, 'credentials']
const SCHEMES: Record<string, string[]> = {
  'rest-api': ['none', 'api-key', 'bearer-token'],
  lambda: ['iam-role'],
}
const REFUSED: Record<string, string> = { oauth2: 'AML-E096', 'service-account': 'AML-E097' }
// What a scheme needs; what a source needs, which is the first, and may have.
const OF_SCHEME: Record<string, string[]> = {
  'api-key': ['header', 'source'],
  'bearer-token': ['source'],
}
const OF_SOURCE: Record<string, string[]> = {
  env: ['name', 'key'],
  aws_secrets_manager: ['secret_id', 'region', 'key'],
}
// The fields of what is refused, about which no more is said.
const OF_REFUSED = ['project', 'secret', 'version', 'vault_url', 'secret_name']
OF_REFUSED.push('provider', 'function_id', 'scopes')
const KNOWN = [...Object.keys(credentials.shape), ...OF_REFUSED]
const ABSENT: Record<string, string> = {
  header: 'AML-E09A',
  source: 'AML-E09C',
  name: 'AML-E09F',
  secret_id: 'AML-E0A1',
}

/** The findings in `backend.transport`, where its type is known. */
export function* lintTransport(document: Document): Findings {
  const type = document.getText(...TRANSPORT, 'type')
  if (document.get('backend', 'type') !== 'custom' || type === null) return
  yield* type === 'rest-api' ? lintRestApi(document) : lintLambda(document)
  for (const name of document.keys(...CREDENTIALS)) {
    if (!KNOWN.includes(name)) yield at('AML-E099', document, [...CREDENTIALS, name], { name })
  }
  const scheme = document.getText(...CREDENTIALS, 'scheme')
  if (scheme !== null) yield* lintCredentials(document, type, scheme)
}

function* lintRestApi(document: Document): Findings {
  const where = [...TRANSPORT, 'base_url']
  const url = document.getText(...where) ?? 'env:'
  if (url.startsWith('env:')) return
  yield at('AML-W224', document, where)
  if (url.endsWith('/')) yield at('AML-E088', document, where)
  if (url.split('/')[2]?.includes('@')) yield at('AML-E089', document, where)
}

function* lintLambda(document: Document): Findings {
  const [hasArn, hasProvider, hasId] = ['function_arn', 'provider', 'function_id'].map((name) =>
    document.has(...TRANSPORT, name),
  )
  if (!hasArn && !(hasProvider && hasId)) yield at('AML-E0B1', document, TRANSPORT)
  if (hasArn && (hasProvider || hasId)) yield at('AML-E0B2', document, TRANSPORT)
  for (const name of ['function_arn', 'function_id']) {
    const where = [...TRANSPORT, name]
    const functionName = document.getText(...where) ?? 'env:'
    if (functionName.startsWith('env:')) continue
    yield at('AML-W224', document, where)
    if (functionName.startsWith('arn:') && functionName.split(':')[4]?.length !== 12) {
      yield at('AML-W226', document, where)
    }
  }
}

function* lintCredentials(document: Document, transport: string, scheme: string): Findings {
  const where = [...CREDENTIALS, 'scheme']
  if (REFUSED[scheme]) {
    yield at(REFUSED[scheme], document, where)
    return
  }
  if (!SCHEMES[transport]?.includes(scheme)) {
    yield at('AML-E098', document, where, { transport })
    return
  }
  const source = document.getText(...CREDENTIALS, 'source')
  const ofScheme = OF_SCHEME[scheme] ?? []
  const hasSource = ofScheme.includes('source')
  const ofSource = hasSource && source !== null ? (OF_SOURCE[source] ?? []) : []
  const needed = [...ofScheme, ...ofSource.slice(0, 1)]
  for (const name of needed) {
    if (!document.has(...CREDENTIALS, name)) {
      yield at(ABSENT[name]!, document, [...CREDENTIALS, name])
    }
  }
  if (hasSource && ofSource.length === 0) {
    // The fields of such a source cannot be known.
    if (source !== null) yield at('AML-E09E', document, [...CREDENTIALS, 'source'])
    return
  }
  const taken = ['scheme', ...needed, ...ofSource]
  for (const name of document.keys(...CREDENTIALS)) {
    if (KNOWN.includes(name) && !taken.includes(name)) {
      yield at('AML-E0A5', document, [...CREDENTIALS, name], { name })
    }
  }
}
