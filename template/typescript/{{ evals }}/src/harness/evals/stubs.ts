// Gives the turns of cases their tools, and offline their model, as a capability.

import { Capability, type Options } from '../capability.ts'
import { type TurnFields, type Turn, TurnRequest } from '../contract.ts'
import { namesOf, scripted, withStubs } from './adapter.ts'
import type { Asked, Declared, Stub } from './cases.ts'
import { fits } from './expect.ts'

/** A case and its turn; `problems` become failures. */
interface Task {
  readonly declared: Partial<Declared>
  readonly asked: Asked
  readonly problems: string[]
}

/** A request for a turn of a case. */
export class EvalRequest extends TurnRequest {
  readonly task: Task

  constructor(asked: TurnFields, task: Task) {
    super(asked)
    this.task = task
  }
}

/** Prepares the turns of cases; other turns stay as they are. */
export class Stubs extends Capability {
  override prepare(turn: Turn, options: Options): void {
    const { request } = turn
    if (!(request instanceof EvalRequest)) return
    const { declared, asked, problems } = request.task
    const stubs = declared.tools ?? {}
    const names = namesOf(options.tools)
    for (const name of Object.keys(stubs).filter((one) => !names.includes(one))) {
      problems.push(`there is no tool ${name}; the agent has ${names.join(', ') || 'none'}`)
    }
    options.tools = withStubs(options.tools, (name) => {
      const answers = Object.hasOwn(stubs, name) ? stubs[name] : undefined
      return answers && (async (given: unknown) => answer(name, answers, problems, given))
    })
    if (this.settings.model === 'offline' && asked.offline) options.model = scripted(asked.offline)
  }
}

function answer(name: string, stubs: Stub[], problems: string[], given: unknown): string {
  const stub = stubs.find(({ input = {} }) => fits(input, given))
  if (!stub) {
    const what = `no answer of ${name} is for ${JSON.stringify(given).slice(0, 200)}`
    problems.push(what)
    throw new Error(what)
  }
  if (stub.error !== undefined) throw new Error(stub.error)
  const { answer: text = '' } = stub
  return typeof text === 'string' ? text : JSON.stringify(text)
}
