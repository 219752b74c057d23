// What made a store fail, in words: of classes and codes, as the text of an error may quote.

import { Unavailable } from './backends.ts'

export const [LATE, MISSING] = ['no answer in time', 'it does not exist']
const [REGION, CREDENTIALS] = ['no AWS region, set AWS_REGION', 'no AWS credentials']
const [REFUSED, UNKNOWN, NO_WAY] = ['connection refused', 'unknown host', 'no way to the host']
const UNREACHED = new Set([REFUSED, UNKNOWN, NO_WAY])
/** Those by which nothing can have been changed. */
export const UNSENT = new Set([...UNREACHED, REGION, CREDENTIALS])

// The first row counts that has a class or a code of the error, or of one that led to it.
const CAUSES: [words: string, codes: string][] = [
  [REGION, 'NoRegionError'],
  [
    CREDENTIALS,
    'NoCredentialsError PartialCredentialsError CredentialRetrievalError ' +
      'ProfileNotFound SSOError CredentialsProviderError TokenProviderError',
  ],
  [REFUSED, 'ECONNREFUSED'],
  [UNKNOWN, 'gaierror ENOTFOUND EAI_AGAIN EAI_FAIL'],
  [NO_WAY, 'ENETUNREACH EHOSTUNREACH EADDRNOTAVAIL'],
  ['TLS failed', 'SSLError'],
  [
    'login refused',
    'AuthenticationError WRONGPASS NOAUTH 401 InvalidAccessKeyId ExpiredToken ' +
      'SignatureDoesNotMatch InvalidClientTokenId UnrecognizedClientException ' +
      'ExpiredTokenException InvalidSignatureException',
  ],
  ['the clock of this machine is wrong', 'RequestTimeTooSkewed'],
  ['permission refused', 'NoPermissionError NOPERM AccessDenied AccessDeniedException 403'],
  [MISSING, 'NoSuchBucket ResourceNotFoundException'],
  [
    'it is in another region',
    'PermanentRedirect AuthorizationHeaderMalformed IllegalLocationConstraintException',
  ],
  ['it is a read-only replica', 'ReadOnlyError READONLY'],
  ['it is out of memory', 'OutOfMemoryError OOM'],
  ['it cannot write to its disk', 'MISCONF'],
  ['it is still loading its data', 'BusyLoadingError LOADING'],
  ['its cluster is down', 'ClusterDownError CLUSTERDOWN MasterDownError MASTERDOWN'],
  ['too many requests', '429 SlowDown ThrottlingException TooManyRequestsException'],
  [LATE, 'ConnectTimeoutError ReadTimeoutError TimeoutError ETIMEDOUT UND_ERR_CONNECT_TIMEOUT'],
  [
    'the connection broke',
    'ConnectionError ReadError RemoteProtocolError IncompleteReadError HTTPClientError ' +
      'ECONNRESET EPIPE UND_ERR_SOCKET',
  ],
  ['an address in the environment is not valid', 'ValueError ERR_INVALID_URL'],
]
const ROWS = CAUSES.map(([words, codes]) => [words, new Set(codes.split(' '))] as const)
const TLS = /^(ERR_TLS|ERR_SSL|CERT_|DEPTH_ZERO_|SELF_SIGNED_|UNABLE_TO_|EPROTO$)/

type Failure = Partial<AggregateError> & { code?: unknown }

/** Why it failed, by what the error is and by codes of a reply; '' for what has no row. */
export function causeOf(error: unknown, ...codes: unknown[]): string {
  const known = new Set([...codes.map(String), ...codesOf(error)])
  return ROWS.find(([, row]) => [...row].some((code) => known.has(code)))?.[0] ?? ''
}

/** One line about a store, a bucket or a service; `why` is of `causeOf` or of the caller. */
export function told(what: string, why: string): string {
  return `${what} cannot be ${UNREACHED.has(why) ? 'reached' : 'used'}: ${why}`
}

/** Throw in words when an AWS client does not know its region, which its own error does not say. */
export async function needRegion({ config }: { config: { region: () => Promise<string> } }) {
  await config.region().catch(() => {
    throw new Unavailable(REGION, true)
  })
}

function codesOf(error: unknown): string[] {
  if (!(error instanceof Error)) return []
  const { code, name = '', cause, errors = [] } = error as Failure
  const own = [String(code), name, ...(TLS.test(String(code)) ? ['SSLError'] : [])]
  return [...own, ...[cause, ...errors].flatMap(codesOf)]
}
