// The steps of a script for the model in `scripted_model.ts`.
//
// For example, this model fails in the middle of its second answer:
//
//     new ScriptedModel([reply('Hello.'), [reply('Well, '), fail(new Error('secret'))]])

type StopReason = 'tool_call' | 'length' | 'filter' | 'cut'

/** A step of an answer; create steps with the functions below. */
export type Step =
  | { type: 'reply'; texts: string[] }
  | { type: 'reasoning'; text: string }
  | { type: 'toolCall'; id: string; name: string; input: string }
  | { type: 'wait'; promise: Promise<unknown> }
  | { type: 'fail'; error: Error }
  | { type: 'stop'; reason: StopReason }

/** The model's answer to a request: a step or a list of steps. */
export type Answer = Step | readonly Step[]

/** Send text, in one or more chunks. */
export function reply(...texts: string[]): Step {
  return { type: 'reply', texts }
}

/** Send signed reasoning. */
export function reasoning(text: string): Step {
  return { type: 'reasoning', text }
}

/** Call a tool. A string as arguments is sent unchanged. */
export function toolCall(name: string, args: object | string, id = 'call'): Step {
  const input = typeof args === 'string' ? args : JSON.stringify(args)
  return { type: 'toolCall', id, name, input }
}

/** Wait until the promise resolves or the turn ends. */
export function wait(promise: Promise<unknown> = new Promise(() => {})): Step {
  return { type: 'wait', promise }
}

/** Throw an error, like a model's client; as the first step, reject the request. */
export function fail(error: Error): Step {
  return { type: 'fail', error }
}

/** End the answer for an unusual reason; `cut` ends the stream without a reason. */
export function stop(reason: StopReason): Step {
  return { type: 'stop', reason }
}
