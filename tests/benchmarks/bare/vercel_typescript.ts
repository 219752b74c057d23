// A server around the AI SDK, as short as can be: the floor for what a render adds.

import { createServer } from 'node:http'
import { json } from 'node:stream/consumers'

import { isStepCount, type ModelMessage, streamText } from 'ai'

import { SYSTEM_PROMPT, TOOLS } from './agent.ts'
import { OfflineModel } from './harness/echo_model.ts'

const [model, limit] = [new OfflineModel(), Number(process.env.HISTORY_MESSAGES)]
const sessions = new Map<string, ModelMessage[]>()

const server = createServer(async (request, response) => {
  if (request.url === '/ping') return response.end('{"status":"Healthy"}')
  const session = String(request.headers['x-amzn-bedrock-agentcore-runtime-session-id'])
  const { prompt } = (await json(request)) as { prompt: string }
  const messages = (sessions.get(session) ?? []).slice(-limit)
  messages.push({ role: 'user', content: prompt })
  const stopWhen = isStepCount(10)
  const result = streamText({ model, instructions: SYSTEM_PROMPT, tools: TOOLS, messages, stopWhen })
  response.setHeader('Content-Type', 'text/event-stream')
  for await (const text of result.textStream) response.write(`data: ${JSON.stringify(text)}\n\n`)
  sessions.set(session, [...messages, ...(await result.responseMessages)])
  response.end()
})
server.listen(Number(process.env.PORT), '127.0.0.1')
