// Callers are whom their tokens name, and nobody else.

import assert from 'node:assert/strict'
import { before, mock, test } from 'node:test'

import { exportJWK, generateKeyPair, SignJWT } from 'jose'

import { Auth } from '../src/auth/capability.ts'
import type { Settings } from '../src/capabilities.ts'
import { ACTOR, Client, JSON_ONLY, POST, SESSION } from './client.ts'

const ISSUER = 'https://issuer.example'
const KEYS = await generateKeyPair('ES256')

before(async () => {
  const key = { ...(await exportJWK(KEYS.publicKey)), kid: '1', alg: 'ES256' }
  mock.method(globalThis, 'fetch', async (url: string) => {
    const found = { issuer: ISSUER, jwks_uri: `${ISSUER}/keys` }
    return Response.json(url.endsWith('/keys') ? { keys: [key] } : found)
  })
})

function token(sub: string, more: object = {}): Promise<string> {
  const exp = Math.floor(Date.now() / 1000) + 60
  const claims = { iss: ISSUER, aud: 'me', sub, exp, ...more }
  return new SignJWT(claims).setProtectedHeader({ alg: 'ES256', kid: '1' }).sign(KEYS.privateKey)
}

async function ask(client: Client, sent: string, headers: object = {}): Promise<unknown[]> {
  const given = sent ? { Authorization: `Bearer ${sent}` } : {}
  const body = Buffer.from(JSON.stringify({ prompt: 'Hi' }))
  const [status, , text] = await client.send(POST, { ...JSON_ONLY, ...given, ...headers }, body)
  return [status, JSON.parse(text).error?.type]
}

function clientOf(more: Partial<Settings> = {}): Client {
  const settings = { authIssuer: ISSUER, authAudience: 'me', ...more }
  const script = Array.from({ length: 9 }, () => ['Yes.'])
  return new Client(script, settings, (all) => [new Auth(all, [])])
}

test('a session belongs to whom the token names', async () => {
  const client = clientOf()
  const mine = { [SESSION]: 's' }
  assert.deepEqual(await ask(client, await token('ada'), mine), [200, undefined])
  assert.deepEqual(await ask(client, await token('ada'), { ...mine, [ACTOR]: 'ada' }), [
    200,
    undefined,
  ])
  const forbidden = [403, 'session_forbidden']
  assert.deepEqual(await ask(client, await token('bob'), mine), forbidden)
  assert.deepEqual(await ask(client, await token('bob'), { ...mine, [ACTOR]: 'ada' }), forbidden)
})

test('what is no token of the issuer is refused', async () => {
  const client = clientOf()
  const expired = await token('ada', { exp: 1 })
  const other = await token('ada', { aud: 'other' })
  for (const sent of ['', 'a.b.c', expired, other, client.runtime.settings.apiToken]) {
    assert.deepEqual(await ask(client, sent), [401, 'unauthorized'])
  }
})

test('an actor that has used up its turns waits', async () => {
  const client = clientOf({ actorTurnsPerDay: 1 })
  assert.deepEqual(await ask(client, await token('ada')), [200, undefined])
  assert.deepEqual(await ask(client, await token('ada')), [429, 'rate_limited'])
  assert.deepEqual(await ask(client, await token('bob')), [200, undefined])
})

test('an actor that has used up its tokens waits', async () => {
  const client = clientOf({ actorTokensPerDay: 1 })
  assert.deepEqual(await ask(client, await token('ada')), [200, undefined])
  assert.deepEqual(await ask(client, await token('ada')), [429, 'rate_limited'])
  assert.equal(client.model.calls.length, 1)
})
