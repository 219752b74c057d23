// Only a span that is recorded gets the messages of a turn.

import assert from 'node:assert/strict'
import { test } from 'node:test'

import { Agent } from '@strands-agents/sdk'

import { traceOnlyRecorded } from '../src/messages.ts'
import { ScriptedModel } from './scripted_model.ts'

test('a span that nobody records costs no JSON', () => {
  const agent = new Agent({ model: new ScriptedModel([]), printer: false })
  traceOnlyRecorded(agent)
  const get = () => assert.fail('it was read')
  const tracer = Reflect.get(agent, '_tracer') as { startModelInvokeSpan(options: object): unknown }
  assert.notEqual(tracer.startModelInvokeSpan({ messages: [new Proxy({}, { get })] }), null)
})
