// One turn as a transaction: stage a copy of the session, stream the reply, commit at the end.

import { AfterToolCallEvent, Agent, configureLogging, MaxTokensError } from '@strands-agents/sdk'
import { type Message, NullConversationManager } from '@strands-agents/sdk'
import type { JSONValue } from '@strands-agents/sdk'

import { SYSTEM_PROMPT, TOOLS } from './agent.ts'
import { AgentError, type Ask, describe, isBlank, log, wellFormed } from './contract.ts'
import { type Parts, withinTime } from './parts.ts'
import type { Snapshot } from './sessions.ts'

type Emit = (chunk: string) => Promise<void>

// It would log what errors say, and so prompts.
configureLogging({ debug() {}, info() {}, warn() {}, error() {} })

/**
 * Run one turn, `emit` each chunk of the reply, and return what the session keeps of it.
 *
 * The session changes in the last step only, so there is nothing to undo: a turn that throws,
 * is aborted, takes too long or ends without a whole reply leaves no trace.
 * Throws AgentError, or the reason of the signal.
 */
export async function takeTurn(parts: Parts, ask: Ask, emit: Emit, signal: AbortSignal) {
  const last = await parts.sessions.open(ask, signal, async (session) => {
    const replayed = session.replay()
    if (replayed) {
      await emit(replayed.reply)
      return replayed
    }
    const agent = stage(parts, ask, session.snapshot)
    const before = agent.messages.length
    const reply = await withinTime(parts, signal, (stop) =>
      stream(parts, agent, ask.prompt ?? '', emit, stop),
    )
    // Without the system prompt: after an update of the code, the code's own applies.
    const snapshot = agent.takeSnapshot({ preset: 'session', exclude: ['systemPrompt'] })
    const { scope, schemaVersion: schema_version, createdAt: created_at, data } = snapshot
    const last = await session.commit({ scope, schema_version, created_at, data }, reply)
    parts.record(ask, agent.messages.slice(before))
    return last
  })
  log('INFO', `session ${ask.sessionId}: turn ${last.turn}`)
  return last
}

/** A new agent that goes on where the session is, and shares nothing with it. */
function stage(parts: Parts, ask: Ask, committed: Snapshot | null): Agent {
  const agent = new Agent({
    model: parts.model,
    systemPrompt: SYSTEM_PROMPT,
    tools: TOOLS,
    printer: false, // the default prints every token
    conversationManager: new NullConversationManager(),
    retryStrategy: null, // a retry after the first chunk would repeat it
    ...parts.agentOptions(ask),
  })
  agent.addHook(AfterToolCallEvent, ({ toolUse, error }) => {
    if (error) log('WARNING', `tool ${toolUse.name}: ${describe(error)}`)
  })
  if (committed) {
    const { schema_version: schemaVersion, created_at: createdAt } = committed
    const data = committed.data as Record<string, JSONValue>
    agent.loadSnapshot({ scope: 'agent', schemaVersion, createdAt, data, appData: {} })
    agent.messages = lastTurns(agent.messages, parts.settings.historyMessages)
  }
  return agent
}

/** Run the agent to its end and return all that was emitted; throw unless it ended well. */
async function stream(
  parts: Parts,
  agent: Agent,
  prompt: string,
  emit: Emit,
  stop: AbortSignal,
): Promise<string> {
  const said: string[] = []
  const limits = { turns: parts.settings.maxSteps }
  const events = agent.stream(prompt, { cancelSignal: stop, limits })
  let next
  try {
    for (next = await events.next(); !next.done; next = await events.next()) {
      stop.throwIfAborted()
      const event = next.value.type === 'modelStreamUpdateEvent' ? next.value.event : null
      if (event?.type === 'modelContentBlockDeltaEvent' && event.delta.type === 'textDelta') {
        const text = wellFormed(event.delta.text)
        said.push(text)
        if (text) await emit(text)
      }
    }
  } catch (error) {
    if (error instanceof MaxTokensError) throw new AgentError('reply_incomplete', '', 'maxTokens')
    throw new AgentError('model_failed', '', describe(error), { cause: error })
  }
  const { stopReason, lastMessage } = next.value
  if (stopReason !== 'endTurn' && stopReason !== 'stopSequence') {
    throw new AgentError('reply_incomplete', '', stopReason)
  }
  const texts = lastMessage.content.map((block) => (block.type === 'textBlock' ? block.text : ''))
  if (isBlank(texts.join(''))) throw new AgentError('empty_reply')
  return said.join('')
}

/** The last whole turns in at most `limit` messages; the very last one in any case. */
function lastTurns(messages: Message[], limit: number): Message[] {
  const starts = messages.flatMap(({ role, content }, index) =>
    role === 'user' && content[0]?.type === 'textBlock' ? [index] : [],
  )
  return messages.slice(starts.find((start) => messages.length - start <= limit) ?? starts.at(-1))
}
