// The HTTP contract and the commands.

import assert from 'node:assert/strict'
import { describe, test } from 'node:test'

import {
  ACTOR,
  ALONE,
  type AgentResponse,
  captureLog,
  Client,
  KEY,
  run,
  SESSION,
  until,
} from './client.ts'
import { Clock } from './clock.ts'
import { fail, reply, toolCall, wait } from './script.ts'

const FOREIGN_HOST = { Host: 'localhost.evil.example' }
const INVALID_SESSION = { [SESSION]: 'x'.repeat(257) }
const INVALID_ACTOR = { [ACTOR]: 'a@b' }
const INVALID_KEY = { [KEY]: 'a b' }

/** An array of 63 levels, to nest in an object. */
const DEEPEST = '['.repeat(63) + ']'.repeat(63)

describe('the first failed check is reported', () => {
  const client = new Client([], { maxBodyBytes: 1000, maxPromptChars: 1 })

  function isRefused(answer: AgentResponse, status: number, error: string): void {
    assert.equal(answer.status, status)
    assert.equal(answer.error, error)
  }

  test('an unsupported method', async () => {
    const answer = await client.get('/invocations')
    isRefused(answer, 405, 'method_not_allowed')
  })

  test('an unknown path, before its host', async () => {
    const answer = await client.request('POST', '/other', FOREIGN_HOST)
    isRefused(answer, 404, 'not_found')
  })

  test('a foreign host, even of a ping', async () => {
    const answer = await client.get('/ping', FOREIGN_HOST)
    isRefused(answer, 403, 'origin_forbidden')
  })

  test('a foreign origin, before the size of the body', async () => {
    const headers = { Origin: 'null', ...INVALID_SESSION }
    const answer = await client.post('x'.repeat(2000), headers)
    isRefused(answer, 403, 'origin_forbidden')
  })

  test('a large body, before the session', async () => {
    const answer = await client.post('x'.repeat(2000), INVALID_SESSION)
    isRefused(answer, 413, 'payload_too_large')
  })

  test('an invalid session, before the JSON; it is not echoed', async () => {
    const answer = await client.post('not JSON', INVALID_SESSION)
    isRefused(answer, 400, 'invalid_session_id')
    assert.notEqual(answer.session_id, INVALID_SESSION[SESSION])
  })

  test('NaN, before actor and key', async () => {
    const answer = await client.post('{"prompt": NaN}', { ...INVALID_ACTOR, ...INVALID_KEY })
    isRefused(answer, 400, 'invalid_json')
  })

  test('a body that is not UTF-8', async () => {
    const answer = await client.post(Buffer.from('{"prompt": "\xff"}', 'latin1'), INVALID_ACTOR)
    isRefused(answer, 400, 'invalid_json')
  })

  test('JSON of 65 levels', async () => {
    const answer = await client.post(`{"prompt": [${DEEPEST}]}`, INVALID_ACTOR)
    isRefused(answer, 400, 'invalid_json')
  })

  test('an invalid actor, before the key', async () => {
    const answer = await client.post({ prompt: '1' }, { ...INVALID_ACTOR, ...INVALID_KEY })
    isRefused(answer, 400, 'invalid_actor')
  })

  test('a body that is not an object', async () => {
    isRefused(await client.post([]), 400, 'invalid_request')
  })

  test('a prompt that is not a string, before the actor', async () => {
    isRefused(await client.post({ prompt: 1 }, INVALID_ACTOR), 400, 'invalid_request')
  })

  test('a blank prompt', async () => {
    isRefused(await client.post({ prompt: '\ufeff' }), 400, 'invalid_request')
  })

  test('a lone surrogate', async () => {
    isRefused(await client.post('{"prompt": "\\ud800"}'), 400, 'invalid_request')
  })

  test('a long prompt', async () => {
    isRefused(await client.post({ prompt: '12' }), 400, 'invalid_request')
  })

  test('a prompt and an end', async () => {
    const body = { prompt: '1', end_session: true }
    isRefused(await client.post(body, { [SESSION]: 'ada' }), 400, 'invalid_request')
  })
})

describe('a reply', () => {
  const ADA = { session: 'ada' }
  const DONE = 'event: done\ndata: {"session_id":"ada","turn":1,"model":"offline"}\n\n'
  const script = [[reply(' ', 'hé'), toolCall('word_count', { text: 'a' })], reply('\ud800')]

  test('can be a stream; lone surrogates are replaced', async () => {
    const client = new Client(script)
    const answer = await client.stream('Hello.', ADA)
    assert.equal(answer.status, 200)
    assert.equal(answer.session_id, 'ada')
    assert.equal(answer.text, `data: " "\n\ndata: "hé"\n\ndata: "\ufffd"\n\n${DONE}`)
  })

  test('can be JSON', async () => {
    const client = new Client(script)
    const answer = await client.say('Hello.', ADA)
    assert.equal(answer.status, 200)
    assert.equal(answer.text, '{"session_id":"ada","turn":1,"model":"offline","reply":" hé\ufffd"}')
  })

  test('is repeated whole for the same key', async () => {
    const client = new Client(script)
    await client.stream('Hello.', { ...ADA, key: 'retry' })
    const events = await client.stream('Hello.', { ...ADA, key: 'retry' })
    const done = DONE.replace(',"model":"offline"', '') // the model was not called
    assert.equal(events.text, `data: " hé\ufffd"\n\n${done}`)
    const json = await client.say('Hello.', { ...ADA, key: 'retry' })
    assert.equal(json.reply, ' hé\ufffd')
    assert.equal(client.model.requests.length, 2)
  })

  test('follows a prompt of the maximum length, beside other fields', async () => {
    const client = new Client([], { maxPromptChars: 1 })
    const answer = await client.post(`{"prompt": "é", "deep": ${DEEPEST}, "text": "[[${DEEPEST}"}`)
    assert.equal(answer.reply, 'ok')
  })

  test('is sent for any host of a server for other machines', async () => {
    const client = new Client([], { host: '0.0.0.0' })
    const answer = await client.post({ prompt: 'Hello.' }, { Host: 'example.org' })
    assert.equal(answer.reply, 'ok')
  })

  test('is sent for localhost', async () => {
    const answer = await new Client().post({ prompt: 'Hello.' }, { Host: '[::1]:8080' })
    assert.equal(answer.reply, 'ok')
  })
})

describe('a failure', () => {
  const ADA = { session: 'ada' }

  test('before the first text is a status without a quote', async (context) => {
    const log = captureLog(context)
    const client = new Client([[reply(' '), fail(new Error('secret'))]])
    const answer = await client.stream('Hello.', ADA)
    assert.equal(answer.status, 502)
    assert.equal(answer.session_id, 'ada')
    assert.equal(answer.error, 'model_failed')
    assert.doesNotMatch(answer.text, /secret/)
    assert.match(log.join('\n'), /model_failed.*Error/)
    assert.doesNotMatch(log.join('\n'), /secret/)
  })

  test('after the first text is an event without a quote', async (context) => {
    const log = captureLog(context)
    const client = new Client()
    context.mock.method(client.runtime, 'committed', () => {
      throw new Error('secret')
    })
    const { text } = await client.stream('Hello.', ADA)
    assert.match(text, /^data: "ok"\n\nevent: error\ndata: {"error":{"type":"internal_error"/)
    assert.doesNotMatch(text, /secret/)
    assert.doesNotMatch(log.join('\n'), /secret/)
  })
})

describe('a silent stream', () => {
  test('has comments that keep its connection open', async (context) => {
    const clock = new Clock(context)
    const silence = Promise.withResolvers<void>()
    const script = [[wait(silence.promise), fail(new Error('secret'))]]
    const client = new Client(script, { keepAliveSeconds: 15 })
    const answer = client.stream('Hello.', { session: 'ada' })
    await until(() => client.model.requests.length === 1)
    clock.advance(16)
    clock.advance(16)
    silence.resolve()
    const { status, text } = await answer
    assert.equal(status, 200)
    assert.match(text, /^(: keep-alive\n\n)+event: error\ndata: {"error":{"type":"model_failed"/)
  })

  test('has no comments before the turn has begun', async (context) => {
    const clock = new Clock(context)
    const silence = Promise.withResolvers<void>()
    const client = new Client([[wait(silence.promise), reply('ok')]], { keepAliveSeconds: 15 })
    const running = client.stream('Hello.', { session: 'ada' })
    await until(() => client.model.requests.length === 1)
    const body = { replace_turn: 9, prompt: 'Hello.' }
    const queued = client.post(body, { Accept: 'text/event-stream', [SESSION]: 'ada' })
    await until(() => client.runtime.turns.tasks.size === 2)
    clock.advance(16)
    silence.resolve()
    await running
    const refused = await queued
    assert.equal(refused.status, 400)
    assert.equal(refused.error, 'invalid_request')
  })
})

describe('a shutdown', () => {
  test('lets turns finish and rejects new turns', async () => {
    const work = Promise.withResolvers<void>()
    const client = new Client([[wait(work.promise), reply('done')]])
    const running = client.say('Hello.', { session: 'ada' })
    await until(() => client.model.requests.length === 1)
    const busy = await client.get('/ping')
    assert.match(busy.text, /HealthyBusy/)
    const drained = client.runtime.turns.drain(60)
    const refused = await client.say('Hello.', { session: 'bob' })
    assert.equal(refused.error, 'draining')
    const foreign = await client.request('POST', '/invocations', FOREIGN_HOST)
    assert.equal(foreign.status, 403)
    work.resolve()
    assert.equal((await running).reply, 'done')
    await drained
    const idle = await client.get('/ping')
    assert.match(idle.text, /^{"status":"Healthy","time_of_last_update":\d+}$/)
  })

  test('cancels turns after the grace period', async () => {
    const client = new Client([wait()])
    const running = client.say('Hello.', { session: 'ada' })
    await until(() => client.model.requests.length === 1)
    const drained = client.runtime.turns.drain(0)
    assert.equal((await running).error, 'draining')
    await drained
  })
})

test('check names an invalid setting and its allowed values', () => {
  const { status, stdout } = run(['check', '--json'], '', { ...ALONE, PORT: '70000' })
  assert.equal(status, 1)
  assert.match(stdout, /"message":"PORT is '70000': use a whole number from 0 to 65535\."/)
})

test('chat sends no commands to the model', () => {
  const { status, stdout } = run(['chat'], 'I am Ada.\n\n/new\nWho am I?\n/help\nquit\n', ALONE)
  assert.equal(status, 0)
  assert.match(stdout, /Now you said: "Who am I\?"/)
  assert.doesNotMatch(stdout, /Earlier you said|said: .\/|said: .quit/)
})

test('chat reads lines from a pipe', () => {
  const { stdout } = run(['chat'], 'I am Ada.\nWho am I?\n', ALONE)
  assert.match(stdout, /Earlier you said: "I am Ada\." Now you said: "Who am I\?"/)
})
