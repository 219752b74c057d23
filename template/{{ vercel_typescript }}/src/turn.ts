// One turn as a transaction: stage a copy of the session, stream the reply, commit at the end.

import { isStepCount, type ModelMessage, modelMessageSchema, RetryError, streamText } from 'ai'
import { z } from 'zod'

import { SYSTEM_PROMPT, TOOLS } from './agent.ts'
import { AgentError, type Ask, describe, isBlank, log, wellFormed } from './contract.ts'
import type { Parts } from './parts.ts'
import type { Last, Snapshot } from './sessions.ts'

type Emit = (chunk: string) => Promise<void>

const Committed = z.object({ messages: z.array(modelMessageSchema) })

/**
 * Run one turn, `emit` each chunk of the reply, and return what the session keeps of it.
 *
 * The session changes in the last step only, so there is nothing to undo: a turn that throws,
 * is aborted, takes too long or ends without a whole reply leaves no trace.
 * Throws AgentError, or the reason of the signal.
 */
export async function takeTurn(
  parts: Parts,
  ask: Ask,
  emit: Emit,
  signal: AbortSignal,
): Promise<Last> {
  try {
    const last = await parts.sessions.open(ask, signal, async (session) => {
      const replayed = session.replay()
      if (replayed) {
        await emit(replayed.reply)
        return replayed
      }
      const before = stage(parts, session.snapshot)
      const messages: ModelMessage[] = [...before, { role: 'user', content: ask.prompt ?? '' }]
      const [reply, answers] = await withinTime(parts, signal, (stop) =>
        stream(parts, ask, messages, emit, stop),
      )
      messages.push(...answers)
      // Without the system prompt: after an update of the code, the code's own applies.
      const created_at = new Date().toISOString()
      const data = { messages }
      const snapshot = { scope: 'agent', schema_version: '1.0', created_at, data }
      const last = await session.commit(snapshot, reply)
      parts.record(ask, messages.slice(before.length))
      return last
    })
    log('INFO', `session ${ask.sessionId}: turn ${last.turn}`)
    return last
  } catch (error) {
    if (error instanceof AgentError) {
      log('WARNING', `session ${ask.sessionId}: ${error.type} ${error.detail}`)
    }
    throw error
  }
}

/** A copy of the messages of the last whole turns; of the very last one in any case. */
function stage(parts: Parts, committed: Snapshot | null): ModelMessage[] {
  if (!committed) return []
  const { messages } = Committed.parse(committed.data)
  const starts = messages.flatMap((message, index) => (message.role === 'user' ? [index] : []))
  const limit = parts.settings.historyMessages
  return messages.slice(starts.find((start) => messages.length - start <= limit) ?? starts.at(-1))
}

/** Do the work, and throw at once when its time is over or the signal is aborted. */
async function withinTime<T>(
  parts: Parts,
  signal: AbortSignal,
  work: (stop: AbortSignal) => Promise<T>,
): Promise<T> {
  const own = new AbortController()
  const stop = AbortSignal.any([signal, own.signal])
  const stopped = new Promise<never>((_, reject) => {
    stop.addEventListener('abort', () => reject(stop.reason), { once: true })
  })
  const seconds = parts.settings.turnTimeoutSeconds
  const timer = setTimeout(() => own.abort(new AgentError('turn_timeout')), seconds * 1000)
  try {
    return await Promise.race([work(stop), stopped])
  } finally {
    clearTimeout(timer)
    own.abort() // ends the model call, whatever ended the turn
  }
}

/** Run the model to its end; return what was emitted, and its messages. Throws AgentError. */
async function stream(
  parts: Parts,
  ask: Ask,
  staged: ModelMessage[],
  emit: Emit,
  stop: AbortSignal,
): Promise<[string, ModelMessage[]]> {
  try {
    const said: string[] = []
    const result = streamText({
      model: parts.model,
      instructions: SYSTEM_PROMPT,
      tools: TOOLS,
      messages: staged,
      maxRetries: 2, // before the first byte only
      stopWhen: isStepCount(parts.settings.maxSteps),
      prepareStep: ({ messages }) => ({ messages: mended(messages) }),
      abortSignal: stop,
      onError: () => {}, // the default prints it, and with it what it quotes
      ...parts.agentOptions(ask),
    })
    for await (const part of result.stream) {
      stop.throwIfAborted()
      if (part.type === 'error') throw part.error
      if (part.type === 'tool-error') {
        log('WARNING', `tool ${part.toolName}: ${describe(part.error)}`)
      }
      if (part.type === 'text-delta') {
        said.push(wellFormed(part.text))
        await emit(wellFormed(part.text))
      }
    }
    const { finishReason, text, toolCalls } = await result.finalStep
    if (finishReason === 'other' || finishReason === 'error') throw new Error('the stream was cut')
    if (finishReason !== 'stop' || toolCalls.length > 0) {
      throw new AgentError('reply_incomplete', '', finishReason)
    }
    if (isBlank(text)) throw new AgentError('empty_reply')
    return [said.join(''), (await result.responseMessages).map(selfContained)]
  } catch (error) {
    if (error instanceof AgentError) throw error
    const cause = RetryError.isInstance(error) ? error.lastError : error
    throw new AgentError('model_failed', '', describe(cause), { cause })
  }
}

/** The messages without halves of surrogate pairs, with which a provider would refuse them. */
function mended(messages: ModelMessage[]): ModelMessage[] {
  return JSON.parse(JSON.stringify(messages), (_, value) =>
    typeof value === 'string' ? wellFormed(value) : value,
  )
}

/** An answer as any provider takes it back, without what only its own can read, and may forget. */
function selfContained(answer: ModelMessage): ModelMessage {
  const parts = answer.content as { type: string; text?: string; providerOptions?: unknown }[]
  const lasting = parts.filter(
    ({ type, text }) => !type.startsWith('reasoning') && !(type === 'text' && isBlank(text ?? '')),
  )
  return { ...answer, content: lasting.map(({ providerOptions, ...part }) => part) } as ModelMessage
}
