// The accepted issuer and tokens, and the limits of an actor; 0 means no limit.

import { type CoreSettings, integer, type SettingsOf, string } from '../settings.ts'

const PUBLIC = 'https://[^\\s/?#@]+(/[^\\s?#]*)?'
const LOOPBACK = 'http://(localhost|127(\\.\\d+){3}|\\[::1\\])(:\\d+)?(/[^\\s?#]*)?'
const QUERY = '(\\?[^\\s#]*)?'

export const PUBLIC_ADDRESS = new RegExp(`^${PUBLIC}${QUERY}$`)
export const LOOPBACK_ADDRESS = new RegExp(`^${LOOPBACK}${QUERY}$`)
const NO_LIMIT = 1_000_000_000

export const AUTH_SETTINGS = {
  authIssuer: string(`|${PUBLIC}|${LOOPBACK}`, 'an https address'),
  authJwksUri: string(`(${PUBLIC}|${LOOPBACK})${QUERY}`, 'an https address'),
  authAudience: string('|[ ,]*[^ ,].*', 'names with commas between them'),
  authActorClaim: string('[!-~]{1,64}', 'the name of a claim', 'sub'),
  // 0 means no limit.
  actorTurnsPerMinute: integer(0, 0, NO_LIMIT),
  actorTurnsPerDay: integer(0, 0, NO_LIMIT),
  actorTokensPerMinute: integer(0, 0, NO_LIMIT),
  actorTokensPerDay: integer(0, 0, NO_LIMIT),
}

export type AuthSettings = CoreSettings & SettingsOf<typeof AUTH_SETTINGS>
