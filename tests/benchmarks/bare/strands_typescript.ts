// A server around Strands Agents, as short as can be: the floor for what a render adds.

import { createServer } from 'node:http'
import { json } from 'node:stream/consumers'

import { Agent, NullConversationManager } from '@strands-agents/sdk'

import { SYSTEM_PROMPT, TOOLS } from './agent.ts'
import { OfflineModel } from './harness/echo_model.ts'

const [model, limit] = [new OfflineModel(), Number(process.env.HISTORY_MESSAGES)]
const agents = new Map<string, Agent>()

function agentOf(session: string): Agent {
  const conversationManager = new NullConversationManager()
  const options = { model, systemPrompt: SYSTEM_PROMPT, tools: TOOLS, printer: false }
  const agent = agents.get(session) ?? new Agent({ ...options, conversationManager })
  agents.set(session, agent)
  agent.messages.splice(0, Math.max(0, agent.messages.length - limit))
  return agent
}

const server = createServer(async (request, response) => {
  if (request.url === '/ping') return response.end('{"status":"Healthy"}')
  const session = String(request.headers['x-amzn-bedrock-agentcore-runtime-session-id'])
  const { prompt } = (await json(request)) as { prompt: string }
  response.setHeader('Content-Type', 'text/event-stream')
  for await (const event of agentOf(session).stream(prompt)) {
    const inner = event.type === 'modelStreamUpdateEvent' ? event.event : null
    if (inner?.type === 'modelContentBlockDeltaEvent' && inner.delta.type === 'textDelta') {
      response.write(`data: ${JSON.stringify(inner.delta.text)}\n\n`)
    }
  }
  response.end()
})
server.listen(Number(process.env.PORT), '127.0.0.1')
