// The messages of a turn, which cost the SDK less here when it traces them.

import type { Agent } from '@strands-agents/sdk'

type Add = (span: { isRecording(): boolean }, messages: unknown) => void

let isDone = false

/**
 * Keep the SDK from making JSON of all messages for spans that nobody records.
 *
 * It does so twice for each call of the model. The names are private: an SDK that has others does
 * what it did.
 */
export function traceOnlyRecorded(agent: Agent): void {
  if (isDone) return
  const tracer: unknown = Reflect.get(agent, '_tracer')
  const methods: { _addEventMessages?: Add } = Object.getPrototypeOf(Object(tracer))
  const add = methods._addEventMessages
  if (typeof add !== 'function') return
  isDone = true
  methods._addEventMessages = function (span, messages) {
    if (span.isRecording()) add.call(this, span, messages)
  }
}
