// A page of assistant-ui: its default runtime, in React without a document. It lies beside the
// `node_modules` that has them, is given the address of the route and prompts, and prints what the
// runtime sent and the messages that it would show.

import { setTimeout as sleep } from 'node:timers/promises'

import { AssistantRuntimeProvider } from '@assistant-ui/react'
import { AssistantChatTransport, useChatRuntime } from '@assistant-ui/react-ai-sdk'
import { createElement } from 'react'
import { create } from 'react-test-renderer'

const [api, ...prompts] = process.argv.slice(2)
const [sent, replies, shown] = [[], [], []]
let runtime

async function fetchAndKeep(input, init) {
  sent.push(JSON.parse(init.body))
  const response = await fetch(input, init)
  replies.push(response.status)
  return response
}

function Page() {
  runtime = useChatRuntime({ transport: new AssistantChatTransport({ api, fetch: fetchAndKeep }) })
  return createElement(AssistantRuntimeProvider, { runtime })
}

const isOver = () => !runtime.thread.getState().isRunning
create(createElement(Page))
while (!runtime?.thread) await sleep(10)
for (const prompt of prompts) {
  const before = replies.length
  const [, action, at, text] = /^(edit|reload) (\d+) ?(.*)/.exec(prompt) ?? []
  if (action === 'edit') {
    const { composer } = runtime.thread.getMessageByIndex(Number(at))
    composer.beginEdit()
    composer.setText(text)
    composer.send()
  } else if (action) runtime.thread.getMessageByIndex(Number(at)).reload()
  else runtime.thread.append(prompt)
  while (replies.length === before || !isOver()) await sleep(10)
  const { messages } = runtime.thread.getState()
  shown.push(messages.map(({ content }) => content.map((part) => part.text).join('')))
}
const messages = runtime.thread.getState().messages.map(({ role, content }) => ({ role, content }))
console.log(JSON.stringify({ sent, replies, messages, shown }))
process.exit(0)
