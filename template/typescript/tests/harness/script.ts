// The steps of a script for a model; `scripted_model.ts` has the model that plays them.
//
// For example, this model fails in the middle of its second answer:
//
//     new ScriptedModel([reply('Hello.'), [reply('Well, '), fail(new Error('secret'))]])

type StopReason = 'tool_call' | 'length' | 'filter' | 'cut'

/** A part of an answer; the functions below make them. */
export type Step =
  | { type: 'reply'; texts: string[] }
  | { type: 'reasoning'; text: string }
  | { type: 'toolCall'; id: string; name: string; input: string }
  | { type: 'wait'; promise: Promise<unknown> }
  | { type: 'fail'; error: Error }
  | { type: 'stop'; reason: StopReason }

/** The answer of a model to one request: a step, or several of them. */
export type Answer = Step | readonly Step[]

/** Stream a text, in these parts. */
export function reply(...texts: string[]): Step {
  return { type: 'reply', texts }
}

/** Stream reasoning, which the provider has signed. */
export function reasoning(text: string): Step {
  return { type: 'reasoning', text }
}

/** Call a tool. Arguments that are a string are sent unchanged, even if they are not JSON. */
export function toolCall(name: string, args: object | string, id = 'call'): Step {
  const input = typeof args === 'string' ? args : JSON.stringify(args)
  return { type: 'toolCall', id, name, input }
}

/** Stream nothing until the promise resolves or the turn ends; without one, until then. */
export function wait(promise: Promise<unknown> = new Promise(() => {})): Step {
  return { type: 'wait', promise }
}

/** Break off with an error. As the first step it refuses the request. */
export function fail(error: Error): Step {
  return { type: 'fail', error }
}

/** End the answer for another reason than that the model has finished. */
export function stop(reason: StopReason): Step {
  return { type: 'stop', reason }
}
