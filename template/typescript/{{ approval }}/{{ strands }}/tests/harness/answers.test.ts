// Each call that waits gets its own answer, and a refused one asks for none.

import assert from 'node:assert/strict'
import { describe, test } from 'node:test'

import { BeforeToolCallEvent, type LocalAgent } from '@strands-agents/sdk'

import { answers } from '../../src/harness/approval/adapter.ts'
import { Approval } from '../../src/harness/approval/capability.ts'
import type { Waiting } from '../../src/harness/approval/waiting.ts'
import type { Options } from '../../src/harness/capability.ts'
import { Client, SESSION } from './client.ts'
import { Payments } from './payments.ts'
import { reply, toolCall } from './script.ts'

describe('an approval is for one call, even if its id contains another id', () => {
  function interruptOf(callId: string): string {
    return `hook:beforeToolCall:${callId}:gate`
  }

  function isApprovedAlone(approved: string, denied: string): void {
    const interrupts = {
      [interruptOf(approved)]: { name: 'gate' },
      [interruptOf(denied)]: { name: 'gate' },
    }
    const waiting = { other: { interrupts: { interrupts } } } as unknown as Waiting
    const reasons = new Map([
      [approved, null],
      [denied, 'No.'],
    ])
    const responses = answers(waiting, reasons).map((given) => given.interruptResponse)
    const [first, second] = responses
    assert.equal(responses.length, 2)
    assert.equal(first?.interruptId, interruptOf(approved))
    assert.equal(first?.response, 'yes')
    assert.equal(second?.interruptId, interruptOf(denied))
    assert.equal(second?.response, 'no')
  }

  test('at its end', () => isApprovedAlone('A', 'z:A'))
  test('at the end of the denied id', () => isApprovedAlone('z:A', 'A'))
  test('at its beginning', () => isApprovedAlone('A', 'A:z'))
  test('at the beginning of the denied id', () => isApprovedAlone('A:z', 'A'))
  test('in another order', () => isApprovedAlone('z:A', 'A:z'))
  test('in another order of the denied id', () => isApprovedAlone('A:z', 'z:A'))
})

describe('a call with broken arguments', () => {
  /** Asks by a hook instead of an intervention. */
  class HookedPayments extends Payments {
    override prepare(_turn: unknown, options: Options): void {
      const initAgent = (agent: LocalAgent) => {
        agent.addHook(BeforeToolCallEvent, (event) => {
          if (event.interrupt({ name: 'gate' }) !== 'yes') event.cancel = 'no'
        })
      }
      Object.assign(options, { plugins: [{ name: 'gate', initAgent }] })
    }
  }

  async function needsNoApproval(PaymentsClass: typeof Payments): Promise<void> {
    const broken = toolCall('pay', '{"amount": 8', 'a')
    const valid = toolCall('pay', { amount: 7 }, 'a')
    const client = new Client([[broken, valid], reply('Done.')], {}, (settings, load) => {
      return [new Approval(settings, [], load), new PaymentsClass(settings, [], load)]
    })
    const { waiting = [] } = await client.say('Pay.', { session: 'ada' })
    const inputs = waiting.map(({ input }) => input)
    assert.deepEqual(inputs, [{ amount: 7 }])
    const approve = waiting.map(({ id }) => id)
    const committed = await client.post({ approve }, { [SESSION]: 'ada' })
    assert.equal(committed.reply, 'Done.')
    const [, , results] = await client.messages('ada')
    assert.match(JSON.stringify(results), /not one JSON object.*paid/)
  }

  test('needs no approval of an intervention', async () => {
    await needsNoApproval(Payments)
  })

  test('needs no approval of a hook', async () => {
    await needsNoApproval(HookedPayments)
  })
})
