// A capability that replaces tools, and offline the model, in the turns of cases.

import { Capability, type Options } from '../capability.ts'
import { type TurnFields, type Turn, TurnRequest } from '../contract.ts'
import { namesOf, scriptedModel, stubTools } from './adapter.ts'
import type { CaseData, CaseTurn, Stub } from './cases.ts'
import { fits } from './expect.ts'

/** A case and its turn; errors of stubs are added to `failures`. */
interface Task {
  readonly caseData: Partial<CaseData>
  readonly caseTurn: CaseTurn
  readonly failures: string[]
}

/** A request for a turn of a case. */
export class EvalRequest extends TurnRequest {
  readonly task: Task

  constructor(asked: TurnFields, task: Task) {
    super(asked)
    this.task = task
  }
}

/** Prepares the turns of cases; does not change other turns. */
export class Stubs extends Capability {
  override prepare(turn: Turn, options: Options): void {
    const { request } = turn
    if (!(request instanceof EvalRequest)) return
    const { caseData, caseTurn, failures } = request.task
    const stubs = caseData.tools ?? {}
    const names = namesOf(options.tools)
    for (const name of Object.keys(stubs).filter((tool) => !names.includes(tool))) {
      failures.push(`the agent has no tool ${name}; its tools: ${names.join(', ') || 'none'}`)
    }
    options.tools = stubTools(options.tools, (name) => {
      const answers = Object.hasOwn(stubs, name) ? stubs[name] : undefined
      return answers && (async (input: unknown) => answer(name, answers, failures, input))
    })
    if (this.settings.model === 'offline' && caseTurn.offline) {
      options.model = scriptedModel(caseTurn.offline)
    }
  }
}

function answer(name: string, stubs: Stub[], failures: string[], input: unknown): string {
  const stub = stubs.find((it) => fits(it.input ?? {}, input))
  if (!stub) {
    const failure = `\`tools\` has no answer of ${name} for ${JSON.stringify(input).slice(0, 200)}`
    failures.push(failure)
    throw new Error(failure)
  }
  if (stub.error !== undefined) throw new Error(stub.error)
  const { answer: text = '' } = stub
  return typeof text === 'string' ? text : JSON.stringify(text)
}
