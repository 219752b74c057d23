// Why a turn failed, for whoever runs this agent.

import type { AgentError } from './contract.ts'
import { CONTROL } from './log.ts'

/** Return why a turn failed, and what to look at. */
export async function explain(error: AgentError): Promise<string> {
  const cause = error.cause instanceof Error ? error.cause.message : ''
  const why = (cause || error.detail || error.type).replace(CONTROL, '')
  return `(${why})\n${await advise(error)}`
}

/** Return a line that says what to do when the model fails, or nothing. */
async function advise({ type, detail }: AgentError): Promise<string> {
  if (type !== 'model_failed') return ''
  const { ADDRESS, CREDENTIALS } = await import('./model.ts')
  const hints: [RegExp, string][] = [
    [/HTTP 40[13]|Credential/, `look at ${CREDENTIALS}`],
    [/HTTP 40[04]/, `look at MODEL and ${ADDRESS}`],
    [/HTTP 429|[Tt]hrottl/, "the provider's limit is reached, try again later"],
    [/Connect|ECONN|ENOTFOUND|EAI_AGAIN/, `look at ${ADDRESS} and the network`],
    [/HTTP 5/, 'the provider failed or is overloaded, try again later'],
  ]
  const [, advice] = hints.find(([form]) => form.test(detail)) ?? []
  return advice ? `${detail}: ${advice}.\n` : ''
}
