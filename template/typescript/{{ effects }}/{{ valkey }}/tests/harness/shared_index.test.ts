// The list of sessions with open effects, which the processes at one Valkey share.

import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import { setImmediate } from 'node:timers/promises'

import { app } from '../../src/app.ts'
import type { Declarations } from '../../src/harness/collections/capability.ts'
import type { Collection } from '../../src/harness/collections/models.ts'
import { AgentError } from '../../src/harness/contract.ts'
import { Effects } from '../../src/harness/effects/capability.ts'
import { EffectIndex } from '../../src/harness/effects/shared_index.ts'
import { SETTINGS as KIND } from '../../src/harness/enabled.ts'
import { createSettings } from '../../src/harness/settings.ts'
import { Store } from '../../src/harness/store/capability.ts'
import { ValkeyStore } from '../../src/harness/store/valkey.ts'
import { until } from './client.ts'
import { Clock } from './clock.ts'

const SETTINGS = createSettings({}, KIND)
const LIMIT = SETTINGS.turnTimeoutSeconds
const POLL_SECONDS = 5

/** A store whose Valkey, with the list, is in this process. */
class Shared extends Store {
  list: string[] = []
  looks = 0
  override readonly declarations = { project: { agentId: 'agent' } } as Declarations

  override get collection(): Collection {
    return { backend: { key_prefix: 'test' } } as Collection
  }

  override get store(): ValkeyStore {
    return this.connect()
  }

  override connect(): ValkeyStore {
    const evaluate = async (script: string, _: string[], id: string) => {
      if (script.includes('ZREM')) this.list = this.list.filter((listed) => listed !== id)
      if (!script.includes('ZRANGEBYSCORE')) return 1
      this.looks++
      return this.list.map((listed) => Buffer.from(listed))
    }
    const methods = { evaluate, close: async () => {} }
    return Object.assign(Object.create(ValkeyStore.prototype), methods)
  }
}

/** A process that polls the list. Its index is closed at the end of the test. */
class Process {
  readonly shared = new Shared(SETTINGS, [], app.load)
  /** The sessions whose effects the process has continued. */
  readonly watched: string[] = []
  readonly #clock: Clock

  /** `hasOpenCalls` reads a session. */
  constructor(context: TestContext, hasOpenCalls: (id: string) => boolean) {
    this.#clock = new Clock(context)
    const effects = new Effects(SETTINGS, [], app.load)
    const { mock } = context
    mock.method(effects.outbox, 'hasOpenCalls', async (id: string) => hasOpenCalls(id))
    mock.method(effects.outbox, 'watch', (id: string) => this.watched.push(id))
    const index = new EffectIndex(SETTINGS, [this.shared, effects], app.load)
    void index.open()
    context.after(() => index.close())
  }

  /** Poll once, after `seconds`. */
  async poll(seconds: number): Promise<void> {
    await setImmediate()
    const { looks } = this.shared
    this.#clock.advance(seconds)
    await until(() => this.shared.looks > looks)
    await setImmediate()
  }
}

test('a session leaves the list when no turn can schedule effects', async (context) => {
  const process = new Process(context, () => false)
  process.shared.list = ['s']
  for (const seconds of [POLL_SECONDS, LIMIT]) {
    await process.poll(seconds)
    assert.deepEqual(process.shared.list, ['s'])
  }
  await process.poll(POLL_SECONDS)
  assert.deepEqual(process.shared.list, [])
})

test('the time starts again if another process removed the session meanwhile', async (context) => {
  const process = new Process(context, () => false)
  process.shared.list = ['s']
  await process.poll(POLL_SECONDS)
  process.shared.list = []
  await process.poll(3 * LIMIT)
  process.shared.list = ['s']
  await process.poll(POLL_SECONDS)
  assert.deepEqual(process.shared.list, ['s'])
})

for (const error of [new SyntaxError('not JSON'), new AgentError('store_unavailable')]) {
  const name = `a session does not stop the others when its read fails: ${error.message}`
  test(name, async (context) => {
    const process = new Process(context, (id) => {
      if (id === 'unreadable') throw error
      return true
    })
    process.shared.list = ['unreadable', 'open']
    await process.poll(POLL_SECONDS)
    assert.deepEqual(process.watched, ['open'])
  })
}
