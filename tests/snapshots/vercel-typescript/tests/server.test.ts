// The HTTP contract, and what the settings allow.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { inspect } from 'node:util'

import { ACTOR, ALONE, Client, JSON_ONLY, KEY, POST, run, SESSION } from './client.ts'

const EVENTS = { Host: '[::1]:8080', [SESSION]: 's' }
const EVIL = { Host: 'localhost.evil.example' }
const BAD = { [ACTOR]: 'a@b', [KEY]: 'a b', ...EVENTS }
const BAD_ID = { ...BAD, [SESSION]: 'x'.repeat(257) }
const LONG = 'x'.repeat(2000)
const DEEP = '['.repeat(63) + ']'.repeat(63)
const NO_JSON = ['NaN', '"\xff"', `[${DEEP}]`]
const NO_PROMPT = ['1', '"\\ufeff"', '"\\ud800"', '"12"', '"1", "end_session": true']
const PROMPT = Buffer.from('{"prompt": "1"}')
const REFUSED: [string, object, string, number, string][] = [
  ['GET /invocations', JSON_ONLY, '', 405, 'method_not_allowed'],
  ['POST /invocations/', EVIL, '', 404, 'not_found'],
  ['GET /ping', EVIL, '', 403, 'origin_forbidden'],
  [POST, { Origin: 'null', ...BAD }, LONG, 403, 'origin_forbidden'],
  [POST, BAD_ID, LONG, 413, 'payload_too_large'],
  [POST, BAD_ID, 'no JSON', 400, 'invalid_session_id'],
  [POST, EVENTS, '[]', 400, 'invalid_request'],
]
for (const text of NO_JSON) REFUSED.push([POST, BAD, `{"prompt": ${text}}`, 400, 'invalid_json'])
for (const text of NO_PROMPT) {
  REFUSED.push([POST, EVENTS, `{"prompt": ${text}}`, 400, 'invalid_request'])
}

for (const [route, headers, body, status, error] of REFUSED) {
  test(`the first check that fails is reported: ${route} ${status} ${error}`, async () => {
    const client = new Client([], { maxBodyBytes: 1000, maxPromptChars: 1 })
    const answer = await client.send(route, headers, Buffer.from(body, 'latin1'))
    assert.equal(answer[0], status)
    assert.match(answer[2], new RegExp(`"type":"${error}"`))
    assert.notEqual(answer[1], BAD_ID[SESSION])
  })
}

test('a reply comes as events or as JSON and can be replayed', async () => {
  const settings = { host: '0.0.0.0', maxPromptChars: 1 }
  const client = new Client([[' ', 'hé', ['call']], ['\ud800']], settings)
  const body = Buffer.from(`{"prompt": "é", "x": ${DEEP}, "y": "[[${DEEP}"}`)
  const headers = { Host: 'example.org', [SESSION]: 's', [KEY]: 'k' }
  const done = 'event: done\ndata: {"session_id":"s","turn":1}\n\n'
  const events = `data: " "\n\ndata: "hé"\n\ndata: "\ufffd"\n\n${done}`
  assert.deepEqual(await client.send(POST, headers, body), [200, 's', events])
  const replayed = `data: " hé\ufffd"\n\n${done}`
  assert.deepEqual(await client.send(POST, headers, body), [200, 's', replayed])
  const reply = '{"session_id":"s","turn":1,"reply":" hé\ufffd"}'
  const answer = await client.send(POST, { ...JSON_ONLY, ...headers }, body)
  assert.deepEqual(answer, [200, 's', reply])
})

test('a failure is a status until there is text, and quotes nothing', async (context) => {
  const log = context.mock.method(console, 'error', () => {})
  const client = new Client([[' ', new Error('secret')]])
  const [status, session, error] = await client.send(POST, EVENTS, PROMPT)
  assert.deepEqual([status, session, error.includes('model_failed')], [502, 's', true])
  client.runtime.committed = () => {
    throw new Error('secret')
  }
  const [, , events] = await client.send(POST, EVENTS, PROMPT)
  assert.match(events, /^data: "ok"\n\nevent: error\ndata: {"error":{"type":"internal_error"/)
  const logged = inspect(log.mock.calls.map((call) => call.arguments))
  assert.match(logged, /model_failed.*Error/)
  assert.doesNotMatch(error + events + logged, /secret/)
})

test('a silent stream has comments, but what refuses a turn is a status', async () => {
  const client = new Client([[0.6, new Error('secret')]], { keepAliveSeconds: 0.2 })
  const silent = client.send(POST, EVENTS, PROMPT)
  while (client.model.calls.length === 0) await sleep(5)
  const replaced = Buffer.from('{"replace_turn": 9, "prompt": "1"}')
  const [refused] = await client.send(POST, EVENTS, replaced)
  const [status, , events] = await silent
  assert.deepEqual([refused, status], [400, 200])
  assert.match(events, /^(: keep-alive\n\n)+event: error\ndata: {"error":{"type":"model_failed"/)
})

test('a shutdown lets turns finish and then cancels them', async () => {
  const client = new Client([[0.2, 'done'], [3]])
  const turns = []
  for (const session of ['a', 'b']) {
    turns.push(client.say(session))
    while (client.model.calls.length < turns.length) await sleep(5)
  }
  const [, , busy] = await client.send('GET /ping', JSON_ONLY)
  const drain = client.runtime.turns.drain(0.4)
  assert.equal(await client.say('c'), 'draining')
  assert.equal((await client.send(POST, EVIL))[0], 403)
  assert.deepEqual(await Promise.all([drain, ...turns]), [undefined, '1', 'draining'])
  const [, , ping] = await client.send('GET /ping', JSON_ONLY)
  assert.match(busy, /HealthyBusy/)
  assert.match(ping, /^{"status":"Healthy",".*":\d+}$/)
})

test('a bad setting is named with what is allowed', () => {
  const { status, stdout } = run(['check', '--json'], '', { PORT: '70000' })
  const what = "PORT is '70000': allowed is a whole number from 0 to 65535."
  assert.deepEqual([status, stdout.includes(`"message":"${what}"`)], [1, true])
})

test('chat obeys commands that never go to the model', () => {
  const { status, stdout } = run(['chat'], 'I am Ada.\n\n/new\nWho am I?\n/help\nquit\n', ALONE)
  assert.deepEqual([status, stdout.includes('Now you said: "Who am I?"')], [0, true])
  assert.doesNotMatch(stdout, /Earlier you said|said: .\/|said: .quit/)
})

test('chat talks line by line from a pipe', () => {
  const { stdout } = run(['chat'], 'I am Ada.\nWho am I?\n', ALONE)
  assert.match(stdout, /Earlier you said: "I am Ada\." Now you said: "Who am I\?"/)
})
