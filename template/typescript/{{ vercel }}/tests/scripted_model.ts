// A model that plays a script, for the tests of every framework in the same words.

import { setTimeout as sleep } from 'node:timers/promises'

import { type Call, finish, OfflineModel, type Part } from '../src/offline_model.ts'

export type Step = (string | number | Error | [keyof typeof STOPS])[]

const STOPS = { call: 'tool-calls', length: 'length', filter: 'content-filter', cut: null } as const
const NAMES: Record<string, string> = { 'tool-call': '(toolUse)', 'tool-result': '(toolResult)' }

/**
 * Plays a step of `script` for each call, then "ok"; `calls` are the conversations it was given.
 *
 * A step lists texts to say, seconds to wait, errors to throw and, if it is not the end of the
 * turn, how it stops: ['call'] for a tool, ['length'], ['filter'] or ['cut'].
 */
export class ScriptedModel extends OfflineModel {
  script: Step[]
  readonly calls: string[] = []

  constructor(script: Step[]) {
    super()
    this.script = [...script]
  }

  override async *answer({ prompt, abortSignal }: Call): AsyncGenerator<Part> {
    const told = prompt.flatMap(({ content }) => (typeof content === 'string' ? [] : [...content]))
    const words = told.map((part) => (part.type === 'text' ? part.text : NAMES[part.type]))
    this.calls.push(words.join(' '))
    let stop: (typeof STOPS)[keyof typeof STOPS] | 'stop' = 'stop'
    let id = 0
    for (const item of this.script.shift() ?? ['ok']) {
      if (item instanceof Error) throw item
      if (typeof item === 'number') {
        await sleep(item * 1000, null, abortSignal ? { signal: abortSignal } : {})
      } else if (typeof item === 'string') {
        yield { type: 'text-start', id: `${++id}` }
        yield { type: 'text-delta', id: `${id}`, delta: item }
        yield { type: 'text-end', id: `${id}` }
      } else {
        stop = STOPS[item[0]]
      }
    }
    if (stop === 'tool-calls') {
      const input = '{"text": "a b"}'
      yield { type: 'tool-call', toolCallId: '1', toolName: 'word_count', input }
    }
    if (stop) yield finish(stop)
  }
}
