// One turn as a transaction: stage a copy of the session, stream the reply, commit at the end.

import { asSchema, isStepCount, type ModelMessage, RetryError, streamText, type Tool } from 'ai'

import * as own from './agent.ts'
import { AgentError, isBlank, type Turn } from './contract.ts'
import { withinTime } from './deadline.ts'
import { describe, log } from './log.ts'
import type { Runtime } from './runtime.ts'
import type { LastTurn } from './sessions.ts'

// The parts that only their own turn needs.
const PASSING = /^(reasoning|tool-approval)/

// The SDK would make the JSON Schema of each tool anew for each call of the model.
const SCHEMAS = new WeakMap<object, ReturnType<typeof asSchema>>()

type EndEvent = Parameters<NonNullable<Parameters<typeof streamText>[0]['onEnd']>>[0]
type Part = { type: string; text: string; providerOptions?: unknown }

/** A tool with its name, as capabilities add it. */
export type NamedTool = [name: string, tool: Tool]

/** Return all tools of an agent. */
export function mergeTools(own: object, added: readonly NamedTool[]): Record<string, Tool> {
  const tools = { ...Object.fromEntries(added), ...own } // the agent's own win where names clash
  return Object.fromEntries(Object.entries(tools).map(([name, tool]) => [name, withSchema(tool)]))
}

function withSchema(tool: Tool): Tool {
  if (!tool.inputSchema) return tool // a tool that takes nothing, where no type checker looked
  const inputSchema = SCHEMAS.get(tool.inputSchema) ?? asSchema(tool.inputSchema)
  SCHEMAS.set(tool.inputSchema, inputSchema)
  return { ...tool, inputSchema }
}

/** Return the name and the description of each tool. */
export function describeTools(tools: ReturnType<typeof mergeTools>): [string, string][] {
  return Object.entries(tools).map(([name, { description }]) => {
    return [name, typeof description === 'string' ? description : '']
  })
}

/**
 * Run one turn, emit each chunk of the reply, and return the `app_data` that it leaves.
 *
 * The session changes only in the last step, so there is nothing to undo: a turn that throws,
 * is aborted, times out or ends without a complete reply leaves no trace.
 * Throws AgentError, or the signal's abort reason.
 */
export function takeTurn(runtime: Runtime, turn: Turn, signal: AbortSignal): Promise<LastTurn> {
  const { sessions, settings } = runtime
  return runtime.around(turn, signal, () =>
    sessions.open(turn.sessionId, turn.actor, signal, async (session) => {
      const replayed = await session.begin(Object.assign(turn, { signal }))
      if (replayed) {
        if (turn.reply) await turn.emit(turn.reply) // a turn can wait without any text
        return replayed
      }
      const committed = session.data.messages as ModelMessage[] // checked by the store
      const prompt: ModelMessage = { role: 'user', content: turn.prompt }
      const staged = [...committed, (turn.answers as ModelMessage | undefined) ?? prompt]
      const responses = await withinTime(settings.turnTimeoutSeconds, signal, (stop) =>
        stream(runtime, Object.assign(turn, { signal: stop }), staged),
      )
      const turnMessages = [...staged.slice(session.start.at), ...responses]
      const isWaiting = turn.waiting.length > 0
      const added = isWaiting ? sanitized(turnMessages) : selfContained(turnMessages)
      // Without the system prompt: each turn uses the SYSTEM_PROMPT of the current code.
      const data = { messages: [...committed.slice(0, session.start.at), ...added] }
      const created_at = new Date().toISOString()
      const snapshot = { scope: 'agent', schema_version: '1.0', created_at, data }
      return session.commit(turn, snapshot, () => runtime.committed(turn, added))
    }),
  )
}

/** Run the agent, and return the messages of its replies. Throws AgentError. */
async function stream(
  runtime: Runtime,
  turn: Turn,
  staged: ModelMessage[],
): Promise<ModelMessage[]> {
  const stop = turn.signal
  let size = 0
  const options = runtime.prepare(turn)
  const end: { event?: EndEvent } = {}
  try {
    const result = streamText({
      instructions: own.SYSTEM_PROMPT,
      toolApproval: (own as { TOOL_APPROVAL?: object }).TOOL_APPROVAL ?? {},
      messages: staged,
      maxRetries: 2, // only before the first chunk
      stopWhen: [isStepCount(runtime.settings.maxSteps), endedBadly],
      // Committed messages are already sanitized.
      prepareStep: ({ messages: all }) => ({
        messages: [...all.slice(0, staged.length), ...sanitized(all.slice(staged.length))],
      }),
      abortSignal: stop,
      onEnd: (event) => void (end.event = event),
      onError: () => {}, // the default prints the error, which may quote a prompt
      ...options,
    })
    for await (const part of result.stream) {
      stop.throwIfAborted()
      if (part.type === 'error') throw part.error
      if (part.type === 'text-delta') size += Buffer.byteLength(part.text)
      if (part.type === 'tool-input-delta') size += Buffer.byteLength(part.delta)
      const isTooLong = size > runtime.settings.maxReplyBytes
      if (isTooLong) throw new AgentError('reply_incomplete', '', 'MAX_REPLY_BYTES')
      if (part.type === 'finish-step') {
        turn.inputTokens += part.usage.inputTokens ?? 0
        turn.cachedTokens += part.usage.inputTokenDetails.cacheReadTokens ?? 0
        turn.outputTokens += part.usage.outputTokens ?? 0
      }
      if (part.type === 'tool-call') {
        await turn.emit({ id: part.toolCallId, name: part.toolName, input: part.input })
      }
      if (part.type === 'tool-result') {
        const { toolCallId: id, output } = part
        const text = typeof output === 'string' ? output : JSON.stringify(output ?? null)
        await turn.emit({ id, text, isError: false })
      }
      if (part.type === 'tool-error') {
        await turn.emit({ id: part.toolCallId, text: String(part.error), isError: true })
        const kind = typeof part.error === 'string' ? 'invalid call' : describe(part.error)
        // A name that the model made up is not logged.
        const isKnown = Object.hasOwn(options.tools, part.toolName)
        const name = isKnown ? part.toolName : 'that does not exist'
        log('WARNING', `tool ${name}: ${kind}`)
      }
      if (part.type === 'text-delta') {
        const chunk = part.text.toWellFormed()
        turn.reply += chunk
        await turn.emit(chunk)
      }
    }
    // To await the promises of the result would read its stream once more.
    const { finalStep, responseMessages } = end.event ?? result
    const { finishReason, rawFinishReason, text, toolCalls, content } = await finalStep
    for (const part of content) {
      if (part.type !== 'tool-approval-request' || part.isAutomatic) continue
      const { toolCallId: id, toolName: name, input } = part.toolCall
      turn.waiting.push({ id, name, input })
    }
    if (turn.waiting.length > 0) return await responseMessages
    const isOver = rawFinishReason !== undefined || finishReason !== 'other'
    if (!isOver || ['interrupted', 'error'].includes(finishReason)) {
      throw new AgentError('model_failed', '', 'the stream was cut')
    }
    if (rawFinishReason === 'guardrail_intervened') throw new AgentError(rawFinishReason)
    if (finishReason !== 'stop' || toolCalls.length > 0) {
      throw new AgentError('reply_incomplete', '', finishReason)
    }
    if (isBlank(text)) throw new AgentError('empty_reply')
    return await responseMessages
  } catch (error) {
    const cause = RetryError.isInstance(error) ? error.lastError : error
    // The SDK wraps an AgentError that a hook or the model threw.
    let inner = cause
    while (inner instanceof Error && !(inner instanceof AgentError)) inner = inner.cause
    if (inner instanceof AgentError) throw inner
    throw new AgentError('model_failed', '', describe(cause), { cause })
  }
}

/** Whether the last step ended badly, so that a further one is pointless. */
function endedBadly({ steps }: { steps: { finishReason: string }[] }): boolean {
  return !['stop', 'tool-calls'].includes(steps.at(-1)?.finishReason ?? '')
}

/** Return the messages without lone surrogates and blank texts, which providers refuse. */
function sanitized(messages: ModelMessage[]): ModelMessage[] {
  const copies = JSON.parse(JSON.stringify(messages), (_, value) =>
    typeof value === 'string' ? value.toWellFormed() : value,
  )
  for (const copy of copies) {
    if (typeof copy.content === 'string') continue
    copy.content = copy.content.filter(({ type, text }: Part) => type !== 'text' || !isBlank(text))
  }
  return copies
}

/** Return the messages of a turn without references to state that the provider keeps. */
function selfContained(messages: ModelMessage[]): ModelMessage[] {
  return sanitized(messages).flatMap((message) => {
    if (typeof message.content === 'string') return [message]
    const lasting = (message.content as Part[]).filter(({ type }) => !PASSING.test(type))
    for (const part of lasting) delete part.providerOptions
    return lasting.length > 0 ? [{ ...message, content: lasting } as ModelMessage] : []
  })
}
