// Background turns of replicas that share Valkey.

import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { after, describe, test, type TestContext } from 'node:test'

import { Background } from '../../src/harness/background/capability.ts'
import { SharedRecordings } from '../../src/harness/background/shared_recordings.ts'
import { Declarations } from '../../src/harness/collections/capability.ts'
import { Collection } from '../../src/harness/collections/models.ts'
import { Secrets } from '../../src/harness/collections/secrets.ts'
import type { Settings } from '../../src/harness/enabled.ts'
import type { DurableStore } from '../../src/harness/store/base.ts'
import { Store } from '../../src/harness/store/capability.ts'
import { DeclaredStore } from '../../src/harness/store/declared.ts'
import { ACTOR, Client, SESSION, until } from './client.ts'
import { type Answer, reply, wait } from './script.ts'
import { backend, startServer } from './store_server.ts'

const AGENT = `test-${randomUUID()}`

const { missing, stop } = await startServer()
const skip = missing || false
after(stop)

class TestStore extends Store {
  override get collection(): Collection {
    return Collection.parse({
      spec_version: '1.2',
      collection_id: 'sessions',
      version: '1.0.0',
      status: 'active',
      meta: { name: 'Sessions', description: 'Stores sessions.', owner: 'tests' },
      scope: { lifetime: 'session' },
      backend,
      writeback: { enabled: true },
    })
  }

  override get isWritable(): boolean {
    return true
  }

  override connect(collection: Collection): DurableStore {
    return new DeclaredStore(collection, AGENT, this.settings, new Secrets(this.settings))
  }
}

/** Start a replica of the agent. */
async function start(
  context: TestContext,
  script: readonly Answer[] = [],
  settings: Partial<Settings> = {},
): Promise<Client> {
  const client = new Client(script, settings, (given, load) => {
    const declarations = new Declarations(given, [], load)
    const store = new TestStore(given, [declarations], load)
    const background = new Background(given, [store], load)
    return [store, background, new SharedRecordings(given, [store, background], load)]
  })
  await client.runtime.open()
  context.after(() => client.runtime.close())
  return client
}

/** Return the headers of a new session. */
function newSession(): Record<string, string> {
  return { [SESSION]: randomUUID().slice(0, 8), [ACTOR]: 'ada' }
}

async function begin(client: Client, headers: Record<string, string>): Promise<string> {
  const { status, body } = await client.post({ prompt: 'Hi', background: true }, headers)
  assert.equal(status, 202)
  return body.turn_id
}

describe('another replica', { skip }, () => {
  test('serves readers of a running and of an ended turn', async (context) => {
    const work = Promise.withResolvers<void>()
    const here = await start(context, [[reply('One, '), wait(work.promise), reply('two.')]])
    const there = await start(context)
    const session = newSession()
    const id = await begin(here, session)
    const following = there.post({ follow: true }, session)
    work.resolve()
    const { text } = await here.post({ follow: true }, session)
    assert.match(text, /data: "two\."\n\nid: .*\nevent: done/)
    assert.equal((await following).text, text)
    const rest = await there.post({ follow: true, last_event_id: `${id}.1` }, session)
    assert.equal(rest.text, text.slice(text.indexOf(`id: ${id}.2`)))
  })

  test('stops a turn', async (context) => {
    const here = await start(context, [[reply('One, '), wait()]])
    const there = await start(context)
    const session = newSession()
    await begin(here, session)
    const following = here.post({ follow: true }, session)
    const stopped = await there.post({ stop: true }, session)
    assert.equal(stopped.body.stopped, true)
    assert.match((await following).text, /"type":"turn_stopped"/)
  })

  test('stops all turns of the actor', async (context) => {
    const turn = [reply('One, '), wait()]
    const here = await start(context, [turn, turn])
    const there = await start(context)
    const session = newSession()
    await begin(here, session)
    await until(() => here.model.requests.length === 1)
    await begin(here, session) // it waits for the first turn, and is accepted after one second
    await there.post({ stop: true }, session)
    await until(() => here.runtime.turns.tasks.size === 0)
    assert.match((await there.post({ follow: true }, session)).text, /"type":"turn_stopped"/)
    assert.equal((await there.post({ stop: true }, session)).body.stopped, false)
  })

  test('serves no other actor', async (context) => {
    const here = await start(context, [wait()])
    const there = await start(context)
    const session = newSession()
    await begin(here, session)
    for (const body of [{ follow: true }, { stop: true }]) {
      const answer = await there.post(body, { ...session, [ACTOR]: 'bob' })
      assert.equal(answer.error, 'session_forbidden')
    }
    await here.post({ stop: true }, session)
  })

  test('serves the last events, if the first were dropped', async (context) => {
    const texts = Array.from({ length: 40 }, (_, index) => `${index} `.padStart(100))
    const limits = { maxEventBytes: 1024 }
    const here = await start(context, [reply(...texts)], limits)
    const there = await start(context, [], limits)
    const session = newSession()
    const id = await begin(here, session)
    const { text } = await there.post({ follow: true, last_event_id: `${id}.40` }, session)
    assert.match(text, /event: done/)
    const lost = await there.post({ follow: true }, session)
    assert.equal(lost.error, 'events_lost')
  })

  test('has no events of an ended session', async (context) => {
    const here = await start(context, [reply('ok')])
    const there = await start(context)
    const session = newSession()
    await begin(here, session)
    await here.post({ follow: true }, session)
    await here.post({ end_session: true }, session)
    await here.runtime.close()
    assert.equal((await there.post({ follow: true }, session)).error, 'not_found')
  })
})
