// Each call that waits gets its own answer, and a refused one asks for none.

import assert from 'node:assert/strict'
import { test } from 'node:test'

import { BeforeToolCallEvent, type LocalAgent } from '@strands-agents/sdk'

import { answers } from '../src/approval/adapter.ts'
import { Approval } from '../src/approval/capability.ts'
import type { Waiting } from '../src/approval/session.ts'
import { Capability, type Options } from '../src/capability.ts'
import { CallingModel } from './calling_model.ts'
import { Client, JSON_ONLY, POST, SESSION } from './client.ts'
import { GATE } from './gate.ts'

const PAIRS = [
  ['A', 'z:A'],
  ['A', 'A:z'],
  ['z:A', 'A:z'],
]

for (const [one = '', other = ''] of PAIRS.flatMap(([a, b]) => [
  [a, b],
  [b, a],
])) {
  test(`of ${one} and ${other} only the first is approved`, () => {
    const idOf = (id: string) => `hook:beforeToolCall:${id}:gate`
    const entries = [one, other].map((id) => [idOf(id), { name: 'gate' }])
    const waiting = { other: { interrupts: { interrupts: Object.fromEntries(entries) } } }
    const reasons = new Map([
      [one, null],
      [other, 'No.'],
    ])
    const given = answers(waiting as unknown as Waiting, reasons)
    const found = given.map(({ interruptResponse }) => {
      return [interruptResponse.interruptId, interruptResponse.response]
    })
    const wanted = [
      [idOf(one), 'yes'],
      [idOf(other), 'no'],
    ]
    assert.deepEqual(found, wanted)
  })
}

/** Asks for each call. */
const HOOK = {
  plugins: [
    {
      name: 'gate',
      initAgent(agent: LocalAgent) {
        agent.addHook(BeforeToolCallEvent, (event) => {
          if (event.interrupt({ name: 'gate' }) !== 'yes') event.cancel = 'no'
        })
      },
    },
  ],
}

for (const [name, gate] of Object.entries({ 'an intervention': GATE, 'a hook': HOOK })) {
  test(`${name} does not ask for a call that is refused`, async () => {
    class Gate extends Capability {
      override prepare(_turn: unknown, options: Options): void {
        Object.assign(options, gate)
      }
    }
    const client = new Client([], {}, (settings) => {
      return [new Approval(settings, []), new Gate(settings, [])]
    })
    client.runtime.model = new CallingModel([
      [
        ['a', 'word_count', '{"text": "a b'],
        ['a', 'word_count', '{"text": "a b"}'],
      ],
    ])
    const ask = async (body: object) => {
      const sent = Buffer.from(JSON.stringify(body))
      const [, , text] = await client.send(POST, { ...JSON_ONLY, [SESSION]: 's' }, sent)
      return JSON.parse(text)
    }
    const { waiting } = await ask({ prompt: 'Count.' })
    assert.deepEqual(
      waiting.map(({ input }: { input: object }) => input),
      [{ text: 'a b' }],
    )
    assert.equal((await ask({ approve: [waiting[0].id] })).reply, 'Done.')
    const { data } = await client.runtime.sessions.read('s', null)
    const results = JSON.stringify(data.messages[2])
    assert.match(results, /not one JSON object.*a b/)
  })
}
