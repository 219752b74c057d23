// The fallback model answers a call that the first model fails before its first content.

import assert from 'node:assert/strict'
import { describe, test } from 'node:test'

import { app } from '../../src/app.ts'
import { AgentError } from '../../src/harness/contract.ts'
import { Fallback } from '../../src/harness/fallback/capability.ts'
import { FALLBACK_SETTINGS } from '../../src/harness/fallback/settings.ts'
import { logging } from '../../src/harness/log.ts'
import { createSettings, readSettings } from '../../src/harness/settings.ts'
import { captureLog, Client } from './client.ts'
import { type Answer, fail, reasoning, reply, toolCall } from './script.ts'
import { ScriptedModel } from './scripted_model.ts'

const ADA = { session: 'ada' }
const DOWN = fail(Object.assign(new Error('a secret'), { code: 'ECONNREFUSED' }))

/** Return a client of an agent with two models, and the second of them. */
function makeClient(
  first: readonly Answer[],
  second: readonly Answer[],
): { client: Client; fallback: ScriptedModel } {
  const model = new ScriptedModel(second, 'second')
  const client = new Client(first, {}, (core, load) => {
    const settings = createSettings({ ...core, modelFallback: 'second' }, FALLBACK_SETTINGS)
    const capability = new Fallback(settings, [], load)
    capability.model = Promise.resolve(model) // replaces the provider's
    return [capability]
  })
  return { client, fallback: model }
}

describe('the fallback model', () => {
  test('answers a failed call, and no later call', async () => {
    const { client, fallback } = makeClient([DOWN, reply('First.')], [reply('Second.')])
    const failed = await client.say('1', ADA)
    assert.equal(failed.reply, 'Second.')
    assert.equal(failed.model, 'second')
    const next = await client.say('2', ADA)
    assert.equal(next.reply, 'First.')
    assert.equal(next.model, 'offline')
    assert.deepEqual(client.model.conversations.at(-1), ['1', 'Second.', '2'])
    assert.deepEqual(fallback.conversations, [['1']])
  })

  test('is logged once, with the kind of the failure', async (context) => {
    const log = captureLog(context)
    const { client } = makeClient([DOWN], [reply('Second.')])
    logging.isVerbose = true
    context.after(() => (logging.isVerbose = false))
    await client.say('1', ADA)
    const [warning, ...others] = log.filter((line) => line.includes('WARNING'))
    assert.match(warning!, /ECONNREFUSED/)
    assert.doesNotMatch(warning!, /secret/)
    assert.deepEqual(others, [])
    assert.match(log.at(-1)!, /outcome=committed .*model=second/)
  })

  test('answers no call that fails for another reason', async () => {
    const { client, fallback } = makeClient([fail(new Error('wrong'))], [])
    const answer = await client.say('1', ADA)
    assert.equal(answer.error, 'model_failed')
    assert.deepEqual(fallback.conversations, [])
  })

  test('answers no call that the agent itself ends', async () => {
    const { client, fallback } = makeClient([fail(new AgentError('reply_incomplete'))], [])
    const answer = await client.say('1', ADA)
    assert.equal(answer.error, 'reply_incomplete')
    assert.deepEqual(fallback.conversations, [])
  })

  test('answers no call that fails after its first text', async () => {
    const { client, fallback } = makeClient([[reply('Well, '), DOWN]], [])
    const answer = await client.say('1', ADA)
    assert.equal(answer.error, 'model_failed')
    assert.deepEqual(fallback.conversations, [])
  })

  test('may fail, too', async () => {
    const { client, fallback } = makeClient([DOWN], [DOWN])
    const answer = await client.say('1', ADA)
    assert.equal(answer.error, 'model_failed')
    assert.equal(fallback.conversations.length, 1)
  })
})

test('in a turn of two models, each gets its own reasoning only', async () => {
  const count = toolCall('word_count', { text: 'a b' })
  const first = [[reasoning('Of the first.'), count], DOWN, DOWN]
  const second = [[reasoning('Of the second.'), count], reply('Done.')]
  const { client, fallback } = makeClient(first, second)
  await client.say('1', ADA)
  const withoutReasoning = ['(toolUse)', '(toolResult)']
  const withReasoning = ['(reasoning)', ...withoutReasoning]
  const [itsFirst, itsSecond] = fallback.conversations
  assert.deepEqual(itsFirst, ['1', ...withoutReasoning])
  assert.deepEqual(itsSecond, ['1', ...withoutReasoning, ...withReasoning])

  await client.say('2', ADA)
  const last = ['1', ...withReasoning, ...withoutReasoning, 'Done.', '2']
  assert.deepEqual(client.model.conversations.at(-1), last)
})

describe('check', () => {
  function severities(model: string, modelFallback: string): string[] {
    const settings = createSettings({ model, modelFallback }, FALLBACK_SETTINGS)
    return new Fallback(settings, [], app.load).check().map(({ severity }) => severity)
  }

  test('accepts two models', () => {
    assert.deepEqual(severities('a', 'b'), [])
  })

  test('warns without a fallback model', () => {
    assert.deepEqual(severities('a', ''), ['warning'])
  })

  test('rejects the same model twice', () => {
    assert.deepEqual(severities('a', 'a'), ['error'])
  })

  test('rejects a fallback model without a first model', () => {
    assert.deepEqual(severities('offline', 'b'), ['error'])
  })

  test('warns if a turn ends before its fallback', () => {
    const given = { model: 'a', modelFallback: 'b', turnTimeoutSeconds: 120 }
    const settings = createSettings(given, FALLBACK_SETTINGS)
    const [finding] = new Fallback(settings, [], app.load).check()
    assert.equal(finding?.id, 'SET-FALLBACK_SECONDS')
    assert.equal(finding.severity, 'warning')
  })

  test('rejects the offline model as the fallback model', (context) => {
    process.env.MODEL_FALLBACK = 'offline'
    context.after(() => delete process.env.MODEL_FALLBACK)
    const [, [finding]] = readSettings(FALLBACK_SETTINGS)
    assert.equal(finding?.id, 'SET-MODEL_FALLBACK')
  })
})
