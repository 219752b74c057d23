// Values that a turn refuses, and a value that changes after it was sent.

import { currentTurn, Data } from './harness/index.ts'

/** Return the message of the error that a function throws. */
function messageOf(use: () => unknown): string {
  try {
    use()
    return 'no error'
  } catch (error) {
    return (error as Error).message
  }
}

/** Emit a value and change it later; return what charges and data that are not valid throw. */
export async function misuse(): Promise<string> {
  const turn = currentTurn()
  const value = { steps: [1], later: undefined }
  const data = new Data('step', value)
  value.steps.push(2)
  await turn.emit(data)
  const cycle: Record<string, unknown> = {}
  cycle.self = cycle
  const charges = [-1, 1.5, NaN, true, '1'].map((tokens) => {
    return messageOf(() => turn.charge({ inputTokens: tokens as number }))
  })
  const foreign = [undefined, NaN, cycle, [new Date()], new Map(), 1n, () => {}]
  const values = foreign.map((given) => messageOf(() => new Data('step', given)))
  const names = ['', 'a b', 'a\n'].map((name) => messageOf(() => new Data(name, 1)))
  return [...charges, ...values, ...names].join('\n')
}
