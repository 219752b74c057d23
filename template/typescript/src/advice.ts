// Why a turn failed, for the operator.

import type { AgentError } from './contract.ts'
import { CONTROL } from './log.ts'
import { proxyVariables } from './settings.ts'

/** Return why a turn failed, with a line of advice if the model failed. */
export async function explain({ cause, detail, type }: AgentError): Promise<string> {
  const message = cause instanceof Error ? cause.message : ''
  const why = `(${(message || detail || type).replace(CONTROL, '')})\n`
  if (type !== 'model_failed') return why
  const { ADDRESS, CREDENTIALS } = await import('./model.ts')
  const proxies = process.env.NODE_USE_ENV_PROXY === '1' ? proxyVariables() : ''
  const network = proxies ? `, ${proxies} and the network` : ' and the network'
  const hints: [RegExp, string][] = [
    [/HTTP 40[13]|Credential/, `look at ${CREDENTIALS}`],
    [/HTTP 40[04]/, `look at MODEL and ${ADDRESS}`],
    [/HTTP 429|[Tt]hrottl/, "the provider's limit is reached, try again later"],
    [/Connect|ECONN|ENOTFOUND|EAI_AGAIN/, `look at ${ADDRESS}${network}`],
    [/HTTP 5/, 'the provider failed or is overloaded, try again later'],
  ]
  const [, advice] = hints.find(([form]) => form.test(detail)) ?? []
  return advice ? `${why}${detail}: ${advice}.\n` : why
}
