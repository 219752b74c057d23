// A turn that continues without its client, and its readers.

import assert from 'node:assert/strict'
import type { RequestListener } from 'node:http'
import { describe, test } from 'node:test'

import { Background } from '../../src/harness/background/capability.ts'
import { Recording } from '../../src/harness/background/recording.ts'
import { Recordings } from '../../src/harness/background/recordings.ts'
import { Capability } from '../../src/harness/capability.ts'
import { AgentError } from '../../src/harness/contract.ts'
import type { Settings } from '../../src/harness/enabled.ts'
import { ACTOR, type AgentResponse, captureLog, Client, KEY, SESSION, until } from './client.ts'
import { type Answer, fail, reply, wait } from './script.ts'

const ADA = { [SESSION]: 'chat', [ACTOR]: 'ada' }
const BOB = { [SESSION]: 'chat', [ACTOR]: 'bob' }

type Fields = Record<string, string>

/** A capability of a project: it needs a password, and removes the prefix of a path. */
class Guard extends Capability {
  override wrap(app: RequestListener): RequestListener {
    return (request, response) => {
      if (request.headers['x-password'] !== 'open') throw new AgentError('unauthorized')
      request.url = request.url?.replace('/agent/', '/') ?? ''
      return app(request, response)
    }
  }
}

async function open(
  script: readonly Answer[] = [],
  settings: Partial<Settings> = {},
  own: readonly (typeof Guard)[] = [],
): Promise<Client> {
  const make = (given: Settings, load: Client['runtime']['load']) => [
    new Background(given, [], load),
    ...own.map((Class) => new Class(given, [], load)),
  ]
  const client = new Client(script, settings, make)
  await client.runtime.open()
  return client
}

/** Send a form with these fields. */
function postForm(client: Client, fields: Fields): Promise<AgentResponse> {
  const head = 'Content-Disposition: form-data; name='
  const parts = Object.entries(fields).map(
    ([name, text]) => `--edge\r\n${head}"${name}"\r\n\r\n${text}\r\n`,
  )
  const headers = { ...ADA, 'Content-Type': 'multipart/form-data; boundary=edge' }
  return client.post(`${parts.join('')}--edge--\r\n`, headers)
}

/** Start a background turn and return its id. */
async function begin(client: Client, headers: Fields = ADA): Promise<string> {
  const { status, body } = await client.post({ prompt: 'Hi', background: true }, headers)
  assert.equal(status, 202)
  assert.equal(body.session_id, headers[SESSION])
  return body.turn_id
}

function follow(
  client: Client,
  headers: Fields = ADA,
  fields: object = {},
): Promise<AgentResponse> {
  return client.post({ follow: true, ...fields }, headers)
}

/** Wait until a recording has this number of readers. */
async function untilFollowed(client: Client, count: number): Promise<void> {
  const [background] = client.runtime.capabilities as [Background]
  await until(() => background.findHere('chat', 'ada')?.readers.size === count)
}

describe('a background turn', () => {
  test('is accepted at once, and runs on without a client', async () => {
    const work = Promise.withResolvers<void>()
    const client = await open([[reply('One, '), wait(work.promise), reply('two.')]])
    const id = await begin(client)
    assert.match((await client.get('/ping')).text, /HealthyBusy/)
    const following = [follow(client), client.get('/invocations/chat/events', ADA)]
    await untilFollowed(client, 2)
    work.resolve()
    const expected =
      `id: ${id}.1\ndata: "One, "\n\nid: ${id}.2\ndata: "two."\n\n` +
      `id: ${id}.3\nevent: done\ndata: {"session_id":"chat","turn":1,"model":"offline"}\n\n`
    for (const answer of [...(await Promise.all(following)), await follow(client)]) {
      assert.equal(answer.status, 200)
      assert.equal(answer.headers['content-type'], 'text/event-stream; charset=utf-8')
      assert.equal(answer.text, expected)
    }
  })

  test('gets a session id', async () => {
    const client = await open([reply('ok')])
    const answer = await client.post({ prompt: 'Hi', background: true })
    assert.equal(answer.status, 202)
    assert.equal(answer.headers[SESSION.toLowerCase()], answer.body.session_id)
    const { text } = await follow(client, { [SESSION]: answer.body.session_id })
    assert.match(text, /data: "ok"/)
  })

  test('continues after the last event that a reader received', async () => {
    const client = await open([reply('One, ', 'two.')])
    const id = await begin(client)
    const whole = (await follow(client)).text
    const rest = whole.slice(whole.indexOf(`id: ${id}.2`))
    const byHeader = await follow(client, { ...ADA, 'Last-Event-ID': `${id}.1` })
    assert.equal(byHeader.text, rest)
    const byField = await follow(client, ADA, { last_event_id: `${id}.1` })
    assert.equal(byField.text, rest)
    const atEnd = await follow(client, { ...ADA, 'Last-Event-ID': `${id}.3` })
    assert.equal(atEnd.text, '')
    const ofOther = await follow(client, { ...ADA, 'Last-Event-ID': 'other.1' })
    assert.equal(ofOther.text, whole)
  })

  test('can fail', async (context) => {
    captureLog(context)
    const work = Promise.withResolvers<void>()
    const client = await open([[wait(work.promise), fail(new Error('secret'))]])
    const id = await begin(client)
    work.resolve()
    const { text } = await follow(client)
    const start = `id: ${id}.1\nevent: error\ndata: {"error":{"type":"model_failed",`
    assert.equal(text.slice(0, start.length), start)
  })

  test('is not repeated for the same key', async () => {
    const client = await open([reply('once'), reply('twice')])
    await begin(client, { ...ADA, [KEY]: 'retry' })
    await follow(client)
    await begin(client, { ...ADA, [KEY]: 'retry' })
    assert.match((await follow(client)).text, /data: "once"\n\nid: .*\nevent: done/)
    assert.equal(client.model.requests.length, 1)
  })

  test('has the same fields in a form', async () => {
    const client = await open([[reply('One'), wait()]])
    const begun = await postForm(client, { prompt: 'Hi', background: 'true' })
    assert.equal(begun.status, 202)
    for (const fields of [{ background: '1' }, { stop: 'true' }]) {
      const answer = await postForm(client, { prompt: 'Hi', ...fields })
      assert.equal(answer.error, 'invalid_request')
    }
    const stopped = await postForm(client, { stop: 'true' })
    assert.deepEqual(stopped.body, { session_id: 'chat', stopped: true })
    const { text } = await postForm(client, { follow: 'true' })
    assert.match(text, /"type":"turn_stopped"/)
  })

  test('can be stopped, and saves nothing', async () => {
    const client = await open([[reply('One, '), wait()], reply('ok')])
    await begin(client)
    const following = follow(client)
    await untilFollowed(client, 1)
    const stopped = await client.post({ stop: true }, ADA)
    assert.deepEqual(stopped.body, { session_id: 'chat', stopped: true })
    assert.match((await following).text, /event: error\ndata: {"error":{"type":"turn_stopped"/)
    const again = await client.post({ stop: true }, ADA)
    assert.deepEqual(again.body, { session_id: 'chat', stopped: false })
    const next = await client.say('Hi', { session: 'chat', actor: 'ada' })
    assert.equal(next.turn, 1)
  })

  test('may finish during a shutdown', async () => {
    const work = Promise.withResolvers<void>()
    const client = await open([[wait(work.promise), reply('done')]])
    await begin(client)
    const following = follow(client)
    await untilFollowed(client, 1)
    const drained = client.runtime.turns.drain(60)
    const refused = await client.post({ prompt: 'Hi', background: true }, ADA)
    assert.equal(refused.error, 'draining')
    work.resolve()
    await drained
    assert.match((await following).text, /event: done/)
  })
})

describe('a request is rejected', () => {
  test('as without `background`', async () => {
    const client = await open([reply('ok')])
    const blank = await client.post({ prompt: ' ', background: true }, ADA)
    assert.equal(blank.status, 400)
    assert.equal(blank.error, 'invalid_request')
    assert.equal((await follow(client)).status, 404)
    await client.say('Hi', { session: 'chat', actor: 'ada' })
    const foreign = await client.post({ prompt: 'Hi', background: true }, BOB)
    assert.equal(foreign.status, 403)
    const unknown = await client.post({ replace_turn: 9, background: true }, ADA)
    assert.equal(unknown.error, 'invalid_request')
  })

  test('if its fields contradict each other', async () => {
    const client = await open()
    const bodies = [
      { prompt: 'Hi', background: 1 },
      { prompt: 'Hi', follow: true },
      { follow: true, stop: true },
      { stop: null },
      { follow: true, last_event_id: 1 },
    ]
    for (const body of bodies) {
      assert.equal((await client.post(body, ADA)).error, 'invalid_request', JSON.stringify(body))
    }
    assert.equal((await client.post({ follow: true })).error, 'invalid_request')
  })

  test('if another actor sent it', async () => {
    const client = await open([wait()])
    await begin(client)
    assert.equal((await follow(client, BOB)).error, 'session_forbidden')
    assert.equal((await client.post({ stop: true }, BOB)).error, 'session_forbidden')
    assert.equal((await client.get('/invocations/chat/events', BOB)).status, 403)
    await client.post({ stop: true }, ADA)
  })

  test('and hides no session from its actor', async () => {
    const work = Promise.withResolvers<void>()
    const client = await open([[wait(work.promise), reply('ok')]])
    const running = client.say('Hi', { session: 'chat', actor: 'ada' })
    await until(() => client.model.requests.length === 1)
    await begin(client, BOB) // it waits for one second
    work.resolve()
    assert.equal((await running).status, 200)
    assert.match((await follow(client, BOB)).text, /"type":"session_forbidden"/)
    assert.equal((await follow(client)).error, 'not_found')
  })

  test('first by a wrapper of the project', async () => {
    const client = await open([wait(), wait()], {}, [Guard])
    const turn = { prompt: 'Hi', background: true }
    const post = (path: string, body: object, headers: Fields = {}) =>
      client.request('POST', path, { ...ADA, ...headers }, JSON.stringify(body))
    for (const path of ['/agent/invocations', '/invocations/']) {
      for (const body of [turn, { follow: true }, { stop: true }]) {
        assert.equal((await post(path, body)).error, 'unauthorized')
      }
      const headers = { 'X-Password': 'open' }
      assert.equal((await post(path, turn, headers)).status, 202)
      assert.equal((await post(path, { stop: true }, headers)).body.stopped, true)
    }
  })

  test('above the limits of turns and readers', async () => {
    const limits = { maxBackgroundTurns: 2, maxBackgroundTurnsPerActor: 1, maxReaders: 1 }
    const client = await open([wait(), wait()], limits)
    await begin(client)
    const second = { ...ADA, [SESSION]: 'second' }
    const ofActor = await client.post({ prompt: 'Hi', background: true }, second)
    assert.equal(ofActor.error, 'rate_limited')
    await begin(client, { ...BOB, [SESSION]: 'third' })
    const ofAll = await client.post({ prompt: 'Hi', background: true }, second)
    assert.equal(ofAll.error, 'server_busy')
    const following = follow(client)
    await untilFollowed(client, 1)
    assert.equal((await follow(client)).error, 'rate_limited')
    await client.post({ stop: true }, ADA)
    await following
    await client.post({ stop: true }, { ...BOB, [SESSION]: 'third' })
  })
})

describe('a recording', () => {
  test('drops its oldest events above a limit', async () => {
    const texts = Array.from({ length: 40 }, (_, index) => `${index} `.padStart(100))
    const client = await open([reply(...texts)], { maxEventBytes: 1024 })
    const id = await begin(client)
    const { body, status } = await follow(client)
    assert.equal(status, 409)
    assert.equal(body.error.type, 'events_lost')
    const { text } = await follow(client, { ...ADA, 'Last-Event-ID': `${id}.40` })
    assert.match(text, /event: done/)
  })

  test('of a newer turn stays when an older turn ends later', () => {
    const recordings = new Recordings({ maxEventBytes: 1024, eventSeconds: 300 })
    const recorded = { sessionId: 'chat', actor: 'ada', format: 'events' } as const
    const turns = ['older', 'newer'].map((turnId) => new Recording({ ...recorded, turnId }, 1024))
    for (const turn of turns) recordings.add(turn)
    for (const turn of turns.toReversed()) turn.end()
    assert.equal(recordings.find('chat', 'ada')?.turnId, 'newer')
  })

  test('ends with its session', async () => {
    const client = await open([reply('ok')])
    await begin(client)
    await follow(client)
    await client.end({ session: 'chat', actor: 'ada' })
    assert.equal((await follow(client)).error, 'not_found')
  })
})
