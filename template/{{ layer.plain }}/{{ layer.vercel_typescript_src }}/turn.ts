// One turn as a transaction: stage a copy of the session, stream the reply, commit at the end.

import { isStepCount, type ModelMessage, modelMessageSchema, RetryError, streamText } from 'ai'
import { z } from 'zod'

import { SYSTEM_PROMPT, TOOLS } from './agent.ts'
import { AgentError, type Ask, describe, isBlank, log, wellFormed } from './contract.ts'
import { type Parts, withinTime } from './parts.ts'
import type { Last, Snapshot } from './sessions.ts'

type Emit = (chunk: string) => Promise<void>
type Part = { type: string; text: string; providerOptions?: unknown }

// How a whole message ends, well or not; any other end is a stream that was cut.
const ENDS = ['stop', 'tool-calls', 'length', 'content-filter']

const Data = z.object({ messages: z.array(modelMessageSchema) })

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
  const last = await parts.sessions.open(ask, signal, async (session) => {
    const replayed = session.replay()
    if (replayed) {
      await emit(replayed.reply)
      return replayed
    }
    const messages = stage(parts, session.snapshot)
    const prompt: ModelMessage = { role: 'user', content: ask.prompt ?? '' }
    const [reply, answers] = await withinTime(parts, signal, (stop) =>
      stream(parts, ask, [...messages, prompt], emit, stop),
    )
    const added = [prompt, ...answers]
    // Without the system prompt: after an update of the code, the code's own applies.
    const data = { messages: [...messages, ...added] }
    const created_at = new Date().toISOString()
    const snapshot = { scope: 'agent', schema_version: '1.0', created_at, data }
    const last = await session.commit(snapshot, reply)
    parts.record(ask, added)
    return last
  })
  log('INFO', `session ${ask.sessionId}: turn ${last.turn}`)
  return last
}

/** A copy of the messages of the last whole turns; of the very last one in any case. */
function stage(parts: Parts, committed: Snapshot | null): ModelMessage[] {
  if (!committed) return []
  const { messages } = Data.parse(committed.data)
  const starts = messages.flatMap((message, index) => (message.role === 'user' ? [index] : []))
  const limit = parts.settings.historyMessages
  return messages.slice(starts.find((start) => messages.length - start <= limit) ?? starts.at(-1))
}

/** Run the model to its end; return all that was emitted, and its messages. Throws AgentError. */
async function stream(
  parts: Parts,
  ask: Ask,
  staged: ModelMessage[],
  emit: Emit,
  stop: AbortSignal,
): Promise<[string, ModelMessage[]]> {
  const said: string[] = []
  try {
    const result = streamText({
      model: parts.model,
      instructions: SYSTEM_PROMPT,
      tools: TOOLS,
      messages: staged,
      maxRetries: 2, // only before anything was said
      stopWhen: [isStepCount(parts.settings.maxSteps), endedBadly],
      prepareStep: ({ messages }) => ({ messages: mended(messages) }),
      abortSignal: stop,
      onError: () => {}, // the default prints it, and so what it quotes
      ...parts.agentOptions(ask),
    })
    for await (const part of result.stream) {
      stop.throwIfAborted()
      if (part.type === 'error') throw part.error
      if (part.type === 'tool-error') {
        const kind = typeof part.error === 'string' ? 'not a valid call' : describe(part.error)
        log('WARNING', `tool ${part.toolName}: ${kind}`)
      }
      if (part.type === 'text-delta') {
        said.push(wellFormed(part.text))
        await emit(wellFormed(part.text))
      }
    }
    const { finishReason, text, toolCalls } = await result.finalStep
    if (!ENDS.includes(finishReason)) throw new AgentError('model_failed', '', 'the stream was cut')
    if (finishReason !== 'stop' || toolCalls.length > 0) {
      throw new AgentError('reply_incomplete', '', finishReason)
    }
    if (isBlank(text)) throw new AgentError('empty_reply')
    return [said.join(''), selfContained(await result.responseMessages)]
  } catch (error) {
    if (error instanceof AgentError) throw error
    const cause = RetryError.isInstance(error) ? error.lastError : error
    throw new AgentError('model_failed', '', describe(cause), { cause })
  }
}

/** Whether there is no sense in a further step, though the tools of the last one were answered. */
function endedBadly({ steps }: { steps: { finishReason: string }[] }): boolean {
  return !['stop', 'tool-calls'].includes(steps.at(-1)?.finishReason ?? '')
}

/** The messages as a provider takes them: without halves of characters, and blank texts. */
function mended(messages: ModelMessage[]): ModelMessage[] {
  const copies = JSON.parse(JSON.stringify(messages), (_, value) =>
    typeof value === 'string' ? wellFormed(value) : value,
  )
  for (const copy of copies) {
    if (typeof copy.content === 'string') continue
    copy.content = copy.content.filter(({ type, text }: Part) => type !== 'text' || !isBlank(text))
  }
  return copies
}

/** The answers without what only their own provider can read, and may forget. */
function selfContained(answers: ModelMessage[]): ModelMessage[] {
  return mended(answers).map((answer) => {
    const content = answer.content as Part[]
    const lasting = content.filter(({ type }) => !type.startsWith('reasoning'))
    for (const part of lasting) delete part.providerOptions
    return { ...answer, content: lasting } as ModelMessage
  })
}
