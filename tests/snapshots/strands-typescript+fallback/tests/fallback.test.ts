// A second model answers a call that the first one fails before its first content.

import assert from 'node:assert/strict'
import { mock, test } from 'node:test'

import { AgentError } from '../src/contract.ts'
import { Fallback } from '../src/fallback/capability.ts'
import { FALLBACK_SETTINGS } from '../src/fallback/settings.ts'
import { logging } from '../src/log.ts'
import { createSettings, readSettings } from '../src/settings.ts'
import { Client, JSON_ONLY, POST, SESSION } from './client.ts'
import { DownModel } from './down.ts'
import { ScriptedModel, type Step } from './scripted_model.ts'

const IS_DOWN = Object.assign(new Error('a secret'), { code: 'ECONNREFUSED' })

/** Return a client of an agent with two models, and the second one, which plays a script. */
function clientOf(first: Client['runtime']['model'], ...script: Step[]): [Client, ScriptedModel] {
  const second = new ScriptedModel(script)
  const client = new Client([], {}, (core) => {
    const settings = createSettings({ ...core, modelFallback: 'second' }, FALLBACK_SETTINGS)
    const fallback = new Fallback(settings, [])
    fallback.model = Promise.resolve(second) // in place of the one that it would make
    return [fallback]
  })
  client.runtime.model = first
  return [client, second]
}

async function ask(client: Client, prompt: string): Promise<any> {
  const sent = Buffer.from(JSON.stringify({ prompt }))
  const [, , text] = await client.send(POST, { ...JSON_ONLY, [SESSION]: 's' }, sent)
  return JSON.parse(text)
}

test('the second model answers one call', async () => {
  const written = mock.method(console, 'error', () => {})
  logging.isVerbose = true
  const first = new DownModel(IS_DOWN)
  const [client, second] = clientOf(first, ['Second.'])
  assert.equal((await ask(client, '1')).reply, 'Second.')
  logging.isVerbose = false
  const lines = written.mock.calls.map(({ arguments: [line] }) => String(line))
  const warnings = lines.filter((line) => line.includes('WARNING'))
  assert.equal(warnings.length, 1)
  assert.match(warnings[0]!, /ECONNREFUSED/)
  assert.doesNotMatch(warnings[0]!, /secret/)
  assert.match(lines.at(-1)!, /outcome=committed .*detail=answered by second/)
  assert.match((await ask(client, '2')).reply, /Earlier you said: "1"/)
  assert.deepEqual([first.calls, second.calls], [2, ['1']])
})

test('other failures end the turn', async () => {
  for (const error of [new Error('wrong'), new AgentError('reply_incomplete')]) {
    const [client, second] = clientOf(new DownModel(error), ['Second.'])
    assert.match((await ask(client, '1')).error.type, /model_failed|reply_incomplete/)
    assert.deepEqual(second.calls, [])
  }
})

test('after its first text the first model is not replaced', async () => {
  const [client, second] = clientOf(new ScriptedModel([['Well, ', IS_DOWN]]), ['Second.'])
  assert.equal((await ask(client, '1')).error.type, 'model_failed')
  assert.deepEqual(second.calls, [])
})

test('both models may fail', async () => {
  const [client, second] = clientOf(new DownModel(IS_DOWN), [IS_DOWN])
  assert.equal((await ask(client, '1')).error.type, 'model_failed')
  assert.equal(second.calls.length, 1)
})

test('check wants two models', () => {
  const cases = [
    ['a', 'b', []],
    ['a', '', ['warning']],
    ['a', 'a', ['error']],
    ['offline', 'b', ['error']],
  ] as const
  for (const [model, modelFallback, severities] of cases) {
    const settings = createSettings({ model, modelFallback }, FALLBACK_SETTINGS)
    const found = new Fallback(settings, []).check().map(({ severity }) => severity)
    assert.deepEqual(found, severities)
  }
})

test('check warns if a turn ends before the second model is asked', () => {
  const given = { model: 'a', modelFallback: 'b', turnTimeoutSeconds: 120 }
  const found = new Fallback(createSettings(given, FALLBACK_SETTINGS), []).check()
  assert.deepEqual(
    found.map(({ id, severity }) => [id, severity]),
    [['SET-FALLBACK_SECONDS', 'warning']],
  )
})

test('the offline model is no second model', () => {
  process.env.MODEL_FALLBACK = 'offline'
  const [, findings] = readSettings(FALLBACK_SETTINGS)
  delete process.env.MODEL_FALLBACK
  const ids = findings.map(({ id }) => id)
  assert.deepEqual(ids, ['SET-MODEL_FALLBACK'])
})
