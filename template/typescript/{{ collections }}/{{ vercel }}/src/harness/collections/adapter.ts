// Select the AI SDK messages that a model sees.

import { type LanguageModelMiddleware, wrapLanguageModel } from 'ai'

import type { Options } from '../capability.ts'

type Wrapped = Parameters<typeof wrapLanguageModel>[0]['model']
type Transform = NonNullable<LanguageModelMiddleware['transformParams']>
type Message = Parameters<Transform>[0]['params']['prompt'][number]

/** How to read the messages of a framework. */
export interface Form<Message> {
  isPrompt(message: Message): boolean
  withoutTools(message: Message): Message
  sizeOf(message: Message): number
}

const FORM: Form<Message> = {
  isPrompt: ({ role }) => role === 'user',
  withoutTools: (message) => {
    if (message.role !== 'assistant') return message
    return { ...message, content: message.content.filter(({ type }) => type === 'text') }
  },
  sizeOf: ({ content }) => JSON.stringify(content).length,
}

/** Show the turn's model only the messages that `visible` returns. */
export function showOnly(
  options: Options,
  visible: (messages: readonly Message[], form: Form<Message>) => Message[],
): void {
  const middleware: LanguageModelMiddleware = {
    transformParams: async ({ params }) => ({ ...params, prompt: visible(params.prompt, FORM) }),
  }
  // The SDK also accepts a model's name, but `buildModel` never returns a name.
  options.model = wrapLanguageModel({ model: options.model as Wrapped, middleware })
}
