// A page's part of conversations: the class and the transport below useChat, without React.
// It is given the `node_modules` that has `ai`. For each script, a line of its stdin, it prints a
// line: what each step came to.

import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import { pathToFileURL } from 'node:url'

const [packages] = process.argv.slice(2)
const sdk = await import(pathToFileURL(`${packages}/ai/dist/index.js`).href)

let raw = []

/** The transport's fetch, which also keeps the parts of each reply as they came. */
async function fetchAndKeep(input, init) {
  const response = await fetch(input, init)
  if (!response.body) return response
  const [own, copy] = response.body.tee()
  read(copy, raw).catch(() => {})
  return new Response(own, response)
}

async function read(stream, events) {
  let text = ''
  for await (const bytes of stream.pipeThrough(new TextDecoderStream())) {
    const whole = (text + bytes).split('\n\n')
    text = whole.pop()
    events.push(...whole.filter((event) => !event.startsWith(':'))) // comments
  }
}

class State {
  messages = []
  status = 'ready'
  error = undefined
  pushMessage = (message) => void (this.messages = [...this.messages, message])
  popMessage = () => void (this.messages = this.messages.slice(0, -1))
  replaceMessage = (index, message) => void (this.messages = this.messages.with(index, message))
  snapshot = (value) => structuredClone(value)
}

/** What a page sends besides: as assistant-ui does, or as the page of docs/use-chat.md. */
const BODIES = {
  whole: ({ id, messages, trigger, messageId }) => ({ id, messages, trigger, messageId, tools: {} }),
  last: ({ id, messages, trigger, messageId }, { seen }) => ({
    ...{ id, messages: messages.slice(-1), trigger, messageId, seen },
  }),
}

class Chat extends sdk.AbstractChat {
  seen = 0

  constructor({ url, id, headers, sends }) {
    const prepare = sends && ((request) => ({ body: BODIES[sends](request, this) }))
    const more = { fetch: fetchAndKeep, prepareSendMessagesRequest: prepare }
    const transport = new sdk.DefaultChatTransport({ api: url, headers, ...more })
    const sendAutomaticallyWhen = sdk.lastAssistantMessageIsCompleteWithApprovalResponses
    const onFinish = ({ message }) => void (this.seen = message.metadata?.turn ?? this.seen)
    super({ id, transport, state: new State(), sendAutomaticallyWhen, onFinish })
  }
}

/** What a user does; each is given the chat, the parameters of its step, and the script. */
const ACTIONS = {
  send: async (chat, { text, as, parts = [{ type: 'text', text }] }) =>
    chat.sendMessage({ ...(as && { id: as }), role: 'user', parts }),
  edit: async (chat, { text, message, at }) =>
    chat.sendMessage({ text, messageId: message ?? chat.messages.at(at).id }),
  regenerate: async (chat, { at }) => chat.regenerate({ messageId: chat.messages.at(at ?? -1)?.id }),
  // Answers all calls that wait, in their order.
  answer: async (chat, { answers }) => {
    const parts = chat.messages.flatMap((message) => message.parts)
    const waiting = parts.filter(({ state }) => state === 'approval-requested')
    for (const [index, { approval }] of waiting.entries()) {
      await chat.addToolApprovalResponse({ id: approval.id, ...answers[index] })
    }
    while (raw.at(-1) !== 'data: [DONE]' && chat.status !== 'error') await sleep(5)
    while (['submitted', 'streaming'].includes(chat.status)) await sleep(5)
  },
  resume: async (chat) => chat.resumeStream(),
  // Leaves as soon as there is some of the reply.
  leave: async (chat, { text }) => {
    const sent = chat.sendMessage({ text })
    while (!raw.some((event) => event.includes('text-delta'))) await sleep(5)
    await chat.stop()
    await sent
  },
  load: async (chat, _, { url, id, headers }) => {
    const response = await fetch(`${url}?id=${id}`, { headers })
    const messages = await response.json()
    chat.messages = messages.length ? await sdk.validateUIMessages({ messages }) : []
    chat.seen = messages.at(-1)?.metadata.turn ?? 0
  },
}

/** The message that the SDK makes of the parts of a reply, each of which it must know. */
async function messageOf(parts, going) {
  const schema = sdk.uiMessageChunkSchema()
  for (const part of parts) {
    const { success, error } = await schema.validate(part)
    if (!success) throw error
  }
  if (going) return going
  let message
  const stream = ReadableStream.from(parts)
  for await (const next of sdk.readUIMessageStream({ stream, onError: () => {} })) message = next
  return message
}

const chats = new Map() // pages that stay open, by name

async function run(script) {
  const [chat, outcomes] = [chats.get(script.name) ?? new Chat(script), []]
  if (script.name) chats.set(script.name, chat)
  for (const { do: action, ...step } of script.steps) {
    raw = []
    chat.clearError()
    await ACTIONS[action](chat, step, script)
    await sleep(20) // the copy of the reply is read apart from it
    const parts = raw.map((event) => event.replace(/^data: /, '')).filter((it) => it !== '[DONE]')
    const isStream = raw.length > 0
    const isDone = raw.at(-1) === 'data: [DONE]'
    const { status, messages } = chat
    const going = action === 'answer' && messages.at(-1)
    const read = isStream ? await messageOf(parts.map((part) => JSON.parse(part)), going) : null
    const error = chat.error?.message ?? null
    outcomes.push({ status, error, messages, parts: parts.map((it) => JSON.parse(it)), read, isDone })
  }
  return outcomes
}

for await (const line of createInterface({ input: process.stdin })) {
  const said = await run(JSON.parse(line)).catch((error) => ({ failure: error.stack }))
  console.log(JSON.stringify(said))
}
