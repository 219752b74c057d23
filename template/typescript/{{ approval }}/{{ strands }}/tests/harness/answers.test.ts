// Each call that waits gets its own answer, and a refused one asks for none.

import assert from 'node:assert/strict'
import { describe, test } from 'node:test'

import { BeforeToolCallEvent, type LocalAgent, tool, type ToolContext } from '@strands-agents/sdk'
import { z } from 'zod'

import { answers, withDenials } from '../../src/harness/approval/adapter.ts'
import { Approval } from '../../src/harness/approval/capability.ts'
import type { Waiting } from '../../src/harness/approval/waiting.ts'
import { Capability, type Options } from '../../src/harness/capability.ts'
import { type AgentResponse, Client, SESSION } from './client.ts'
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

describe('a call that ran beside a pending call', () => {
  /** Has the tool `book`, which waits for a seat. */
  class Trips extends Capability {
    override tools() {
      const callback = (_input: unknown, context?: ToolContext) => {
        return context!.interrupt<string>({ name: 'seat' })
      }
      const inputSchema = z.object({})
      return [tool({ name: 'book', description: 'Book a seat.', inputSchema, callback })]
    }
  }

  /** Answers the interrupt of each call without a person. */
  class GrantedPayments extends Payments {
    override prepare(_turn: unknown, options: Options): void {
      const initAgent = (agent: LocalAgent) => {
        agent.addHook(BeforeToolCallEvent, (event) => {
          const answer = event.interrupt({ name: 'gate', response: 'granted' })
          if (answer !== 'granted') event.cancel = 'The gate is closed.'
        })
      }
      Object.assign(options, { plugins: [{ name: 'gate', initAgent }] })
    }
  }

  function makeClient(PaymentsClass: typeof Payments): Client {
    const step = [toolCall('pay', { amount: 7 }, 'a'), toolCall('book', {}, 'b')]
    return new Client([step, reply('Done.')], {}, (settings, load) => {
      const tools = [new PaymentsClass(settings, [], load), new Trips(settings, [], load)]
      return [new Approval(settings, [], load), ...tools]
    })
  }

  function toolsOf({ waiting = [] }: AgentResponse): string[] {
    return waiting.map((call) => call.tool)
  }

  function approve(client: Client, { waiting = [] }: AgentResponse): Promise<AgentResponse> {
    return client.post({ approve: waiting.map(({ id }) => id) }, { [SESSION]: 'ada' })
  }

  test('is not pending again', async () => {
    const client = makeClient(Payments)
    const first = await client.say('Go.', { session: 'ada' })
    assert.deepEqual(toolsOf(first), ['pay', 'book'])
    const second = await approve(client, first)
    assert.deepEqual(toolsOf(second), ['book'])
    const { waiting: deny } = second
    const committed = await client.post({ deny }, { [SESSION]: 'ada' })
    assert.equal(committed.reply, 'Done.')
    const [, , results] = await client.messages('ada')
    assert.match(JSON.stringify(results), /"paid".*"Denied by a person/)
  })

  test('is not pending if a hook answered, and the answers of the hook stay', async () => {
    const client = makeClient(GrantedPayments)
    const waiting = await client.say('Go.', { session: 'ada' })
    assert.deepEqual(toolsOf(waiting), ['book'])
    const committed = await approve(client, waiting)
    assert.equal(committed.reply, 'Done.')
    const [, , results] = await client.messages('ada')
    assert.match(JSON.stringify(results), /"paid".*"yes"/)
  })

  test('keeps its result, even if it is denied', () => {
    const completedToolResults = { a: 'paid' }
    const interrupts = { interrupts: {}, pendingToolExecution: { completedToolResults } }
    const waiting = { other: { interrupts } } as unknown as Waiting
    assert.deepEqual(withDenials(waiting, new Map([['a', 'No.']])), waiting.other)
  })
})
