// A caller is the actor that its token names.

import assert from 'node:assert/strict'
import { before, describe, mock, test } from 'node:test'

import { exportJWK, generateKeyPair, SignJWT } from 'jose'

import { Auth } from '../../src/harness/auth/capability.ts'
import { Capability } from '../../src/harness/capability.ts'
import type { Turn } from '../../src/harness/contract.ts'
import type { Settings } from '../../src/harness/enabled.ts'
import { ACTOR, type AgentResponse, Client, SESSION } from './client.ts'
import { reply } from './script.ts'

const ISSUER = 'https://issuer.example'
const KEYS = await generateKeyPair('ES256')

/** The issuer publishes its key. */
before(async () => {
  const key = { ...(await exportJWK(KEYS.publicKey)), kid: '1', alg: 'ES256' }
  mock.method(globalThis, 'fetch', async (url: string) => {
    if (url.endsWith('/keys')) return Response.json({ keys: [key] })
    return Response.json({ issuer: ISSUER, jwks_uri: `${ISSUER}/keys` })
  })
})

/** Return a token of the issuer that names an actor. */
function tokenOf(actor: string, claims: object = {}): Promise<string> {
  const inOneMinute = Math.floor(Date.now() / 1000) + 60
  const all = { iss: ISSUER, aud: 'me', sub: actor, exp: inOneMinute, ...claims }
  return new SignJWT(all).setProtectedHeader({ alg: 'ES256', kid: '1' }).sign(KEYS.privateKey)
}

function makeClient(settings: Partial<Settings> = {}): Client {
  const all = { authIssuer: ISSUER, authAudience: 'me', ...settings }
  return new Client([reply('Yes.')], all, (given, load) => [new Auth(given, [], load)])
}

function ask(
  client: Client,
  token: string,
  headers: Record<string, string> = {},
): Promise<AgentResponse> {
  return client.post({ prompt: 'Hi' }, { Authorization: `Bearer ${token}`, ...headers })
}

describe('a session belongs to the actor of its token', () => {
  const shared = { [SESSION]: 'shared' }

  test('and the header of an actor may only repeat it', async () => {
    const client = makeClient()
    const first = await ask(client, await tokenOf('ada'), shared)
    assert.equal(first.turn, 1)
    const second = await ask(client, await tokenOf('ada'), { ...shared, [ACTOR]: 'ada' })
    assert.equal(second.turn, 2)
  })

  test('so another actor is refused, with any header', async () => {
    const client = makeClient()
    await ask(client, await tokenOf('ada'), shared)
    const other = await ask(client, await tokenOf('bob'), shared)
    assert.equal(other.error, 'session_forbidden')
    const disguised = await ask(client, await tokenOf('bob'), { ...shared, [ACTOR]: 'ada' })
    assert.equal(disguised.status, 403)
    assert.equal(disguised.error, 'session_forbidden')
  })
})

describe('a request is refused', () => {
  function isRefused({ status, error }: AgentResponse): void {
    assert.equal(status, 401)
    assert.equal(error, 'unauthorized')
  }

  test('without a token', async () => {
    isRefused(await makeClient().say('Hi'))
  })

  test('with a text that is no token', async () => {
    isRefused(await ask(makeClient(), 'a.b.c'))
  })

  test('with a token that has expired', async () => {
    isRefused(await ask(makeClient(), await tokenOf('ada', { exp: 1 })))
  })

  test('with a token for another audience', async () => {
    isRefused(await ask(makeClient(), await tokenOf('ada', { aud: 'other' })))
  })

  test('with an empty token, as API_TOKEN is unset', async () => {
    isRefused(await ask(makeClient(), ''))
  })
})

describe('an actor is rejected until the period ends', () => {
  test('when it has used up its turns', async () => {
    const client = makeClient({ actorTurnsPerDay: 1 })
    const first = await ask(client, await tokenOf('ada'))
    assert.equal(first.turn, 1)
    const second = await ask(client, await tokenOf('ada'))
    assert.equal(second.status, 429)
    assert.equal(second.error, 'rate_limited')
    const other = await ask(client, await tokenOf('bob'))
    assert.equal(other.turn, 1)
  })

  test('when it has used up its tokens', async () => {
    const client = makeClient({ actorTokensPerDay: 1 })
    const first = await ask(client, await tokenOf('ada'))
    assert.equal(first.turn, 1)
    const second = await ask(client, await tokenOf('ada'))
    assert.equal(second.status, 429)
    assert.equal(second.error, 'rate_limited')
    assert.equal(client.model.requests.length, 1)
  })

  test('when a tool has charged its tokens', async () => {
    class Charging extends Capability {
      override around(turn: Turn, run: () => Promise<unknown>): Promise<unknown> {
        turn.charge({ inputTokens: 100_000 })
        return run()
      }
    }
    const settings = { authIssuer: ISSUER, authAudience: 'me', actorTokensPerDay: 100_000 }
    const client = new Client([reply('Yes.')], settings, (given, load) => {
      return [new Auth(given, [], load), new Charging(given, [], load)]
    })
    const first = await ask(client, await tokenOf('ada'))
    assert.equal(first.turn, 1)
    const second = await ask(client, await tokenOf('ada'))
    assert.equal(second.error, 'rate_limited')
  })
})
