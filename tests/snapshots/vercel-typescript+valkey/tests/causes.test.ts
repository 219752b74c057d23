// Why a store fails is said in words, and without what a secret holds.

import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { test } from 'node:test'

import { readOptions } from '../src/memory/options.ts'
import { Secrets } from '../src/memory/secrets.ts'
import { ValkeyClient } from '../src/memory/valkey_client.ts'

const MAIN = `${import.meta.dirname}/../src/memory/main.ts`
const [OPTIONS] = readOptions()
const NO_ADDRESS = "secret 'env:STORE' is no address such as valkeys://user:p%40ss@host:6379"
const TOLD = {
  'valkey://:p4ss@127.0.0.1:1': 'valkey at 127.0.0.1:1 cannot be reached: connection refused',
  'valkey://:p4ss@[::1]:99999': NO_ADDRESS,
  'valkey://p4ss/word@host': NO_ADDRESS,
  '{"host":"h","password":"p4ss"}': NO_ADDRESS,
}

for (const [secret, message] of Object.entries(TOLD)) {
  test(`valkey is named without its password: ${secret}`, async () => {
    process.env.STORE = secret
    const client = new ValkeyClient('env:STORE', 1, 3, new Secrets(OPTIONS))
    await assert.rejects(
      client.run((it) => it.ping()),
      { message, isCertain: true },
    )
    client.close()
  })
}

test('a secret names its variable and what AWS lacks', async () => {
  for (const name of ['AWS_REGION', 'AWS_DEFAULT_REGION', 'AWS_PROFILE']) delete process.env[name]
  process.env.AWS_CONFIG_FILE = '/dev/null'
  const why = 'AWS Secrets Manager cannot be used: no AWS region, set AWS_REGION'
  await assert.rejects(new Secrets(OPTIONS).get('path/x'), {
    message: `secret 'path/x': ${why}; locally, set PATH_X`,
  })
})

test('each command about sessions has help', () => {
  for (const words of [[], ['list'], ['show'], ['restore'], ['end']]) {
    const given = [MAIN, 'sessions', ...words, '--help']
    const { status, stdout } = spawnSync(process.execPath, given, { encoding: 'utf8' })
    assert.equal(status, 0)
    assert.match(stdout, new RegExp(`^Usage: .* sessions ${words[0] ?? 'COMMAND'}`))
  }
})
