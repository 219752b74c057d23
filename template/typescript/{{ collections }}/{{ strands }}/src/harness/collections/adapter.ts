// Select the Strands messages that a model sees.

import { InvokeModelStage, type LocalAgent, Message, type Plugin } from '@strands-agents/sdk'

import type { Options } from '../capability.ts'

/** How to read the messages of a framework. */
export interface Form<Message> {
  isPrompt(message: Message): boolean
  withoutTools(message: Message): Message
  sizeOf(message: Message): number
}

const FORM: Form<Message> = {
  isPrompt: ({ role, content }) => role === 'user' && content[0]?.type !== 'toolResultBlock',
  withoutTools: ({ role, content }) => {
    return new Message({ role, content: content.filter(({ type }) => type === 'textBlock') })
  },
  sizeOf: (message) => JSON.stringify(message.toJSON().content).length,
}

/** Show the turn's model only the messages that `visible` returns. */
export function showOnly(
  options: Options,
  visible: (messages: readonly Message[], form: Form<Message>) => Message[],
): void {
  const plugin: Plugin = {
    name: 'earlier-turns',
    initAgent(agent: LocalAgent) {
      agent.addMiddleware(InvokeModelStage.Input, (context) => {
        return { ...context, messages: visible(context.messages, FORM) }
      })
    },
  }
  options.plugins = [...((options.plugins as Plugin[] | undefined) ?? []), plugin]
}
