// Runs the Strands agent of a turn on a copy of the session.

import { AfterToolCallEvent, AfterToolsEvent, Agent, BeforeToolsEvent } from '@strands-agents/sdk'
import { configureLogging, MaxTokensError, Message } from '@strands-agents/sdk'
import { NullConversationManager, TextBlock, ToolResultBlock } from '@strands-agents/sdk'
import type { ContentBlock, InterruptResponseContent, JSONValue } from '@strands-agents/sdk'
import type { MessageData, ToolResultContent } from '@strands-agents/sdk'

import { Shortening } from './models/context_length.ts'
import { AgentError, isBlank, type ToolCall, type ToolResult } from './contract.ts'
import type { Turn, Usage } from './contract.ts'
import { mustPause, pause, withinTime } from './deadline.ts'
import { filesOf, toParts } from './file_parts.ts'
import { causesOf, describe, log, placeOf } from './log.ts'
import { checkMessages, cutResult, marksOf, repairAnswers, textIn } from './messages.ts'
import type { Runtime } from './modules.ts'
import type { Data as Kept, Stage, TurnAnswer } from './sessions/sessions.ts'
import { AcceptedTypes } from './models/rejected_files.ts'
import { mendRequests } from './models/shortening.ts'

const OUTPUT_TOOL = 'strands_structured_output' // the SDK's name
const STOPS = ['toolUse', 'maxTokens', 'contentFiltered', 'limitTurns']

// The default logs error texts, which may quote prompts.
configureLogging({ debug() {}, info() {}, warn() {}, error() {} })

// The prefixes of interrupt ids, before the call id and the name.
const SOURCES = ['hook:beforeToolCall', 'tool', 'middleware:executeTool']

/** The interrupts of an agent in a snapshot. */
export interface Interrupted {
  interrupts: Record<string, { name: string; response?: unknown }>
  pendingToolExecution: {
    assistantMessageData: MessageData
    completedToolResults: Record<string, ReturnType<ToolResultBlock['toJSON']>>
  }
}

/** Run the agent for at most `seconds`; return the new snapshot and the messages of the turn. */
export async function answerTurn(
  runtime: Runtime,
  stage: Stage,
  seconds: number,
): Promise<TurnAnswer> {
  const { turn } = stage
  const accepted = new AcceptedTypes(runtime.fileTypes, turn.request.files)
  const agent = agentOf(runtime, stage, accepted)
  const shortening = new Shortening(stage)
  mendRequests(agent, shortening, accepted)
  const { FINAL_TOOLS = [] } = runtime.agent
  const ending = endingOf(agent, turn.request.output ? [] : FINAL_TOOLS)
  try {
    await withinTime(seconds, turn.signal, async (stop) => {
      turn.signal = stop
      await stream(runtime, agent, stage)
      if (turn.waiting.length > 0) return // a final tool ends the turn after the answers
      await turn.say(ending.text)
      turn.output = ending.output
    })
  } finally {
    shortening.report()
    turn.count(usageOf(agent))
  }
  // Store no system prompt: each turn uses the current SYSTEM_PROMPT.
  const state = agent.takeSnapshot({ preset: 'session', exclude: ['systemPrompt'] })
  if (turn.waiting.length > 0) {
    cutPending(state.data.interrupts as unknown as Interrupted, runtime.settings.maxResultChars)
  }
  const { scope, schemaVersion: schema_version, createdAt: created_at } = state
  checkMessages(messagesOf(state.data, turn).slice(stage.at), turn.waiting.length > 0)
  const snapshot = { scope, schema_version, created_at, data: state.data as unknown as Kept }
  return { snapshot, newMessages: agent.messages.slice(stage.at) }
}

/** The final tool's text, and the output value. */
interface Ending {
  text: string
  output: unknown
}

/** End the turn with a result of one of these tools or of the SDK's output tool. */
function endingOf(agent: Agent, names: readonly string[]): Ending {
  const ending: Ending = { text: '', output: undefined }
  const final = new Set<string>() // call ids
  // A call that ran beside a waiting call has a result, but no AfterToolCallEvent.
  agent.addHook(BeforeToolsEvent, ({ message }) => {
    for (const block of message.content) {
      if (block.type === 'toolUseBlock' && names.includes(block.name)) final.add(block.toolUseId)
    }
  })
  agent.addHook(AfterToolCallEvent, ({ toolUse, result }) => {
    if (toolUse.name !== OUTPUT_TOOL || result.status === 'error') return
    const [block] = result.content
    if (block?.type === 'jsonBlock') ending.output = block.json
    ending.text = JSON.stringify(ending.output)
  })
  agent.addHook(AfterToolsEvent, (event) => {
    const results = event.message.content.filter((block) => block.type === 'toolResultBlock')
    const finalResults = results.filter(({ toolUseId, status }) => {
      return final.has(toolUseId) && status !== 'error'
    })
    const texts = finalResults.map(({ content }) => content.map(textIn).join('\n'))
    ending.text ||= texts.find((text) => !isBlank(text)) ?? ''
    if (ending.text) event.endTurn = ending.text
  })
  return ending
}

function usageOf({ metrics }: Agent): Usage {
  const usage = metrics.accumulatedUsage
  const cachedTokens = usage.cacheReadInputTokens ?? 0
  const inputTokens = usage.inputTokens + cachedTokens + (usage.cacheWriteInputTokens ?? 0)
  return { inputTokens, cachedTokens, outputTokens: usage.outputTokens }
}

/** Return the messages of a session, including waiting calls. */
function messagesOf(data: Record<string, JSONValue>, turn: Turn): MessageData[] {
  const messages = data.messages as unknown as MessageData[]
  if (turn.waiting.length === 0) return messages
  const { pendingToolExecution } = data.interrupts as unknown as Interrupted
  return [...messages, pendingToolExecution.assistantMessageData]
}

/** Cut the results of other calls in a waiting step, which the SDK stores uncut. */
function cutPending({ pendingToolExecution }: Interrupted, maxChars: number): void {
  const { completedToolResults: results } = pendingToolExecution
  for (const [id, data] of Object.entries(results)) {
    results[id] = cutResult(ToolResultBlock.fromJSON(data), maxChars).toJSON()
  }
}

/** Return a new agent with a copy of the session. */
function agentOf(runtime: Runtime, { turn, data: stored }: Stage, accepted: AcceptedTypes): Agent {
  const { SYSTEM_PROMPT, INTERVENTIONS = [] } = runtime.agent
  const agent = new Agent({
    systemPrompt: SYSTEM_PROMPT,
    interventions: INTERVENTIONS,
    printer: false, // the default prints every token
    conversationManager: new NullConversationManager(),
    retryStrategy: null, // a retry would repeat sent chunks
    ...runtime.prepare(turn),
  })
  repairAnswers(agent, runtime.settings, accepted)
  agent.addHook(AfterToolCallEvent, ({ tool, error }) => {
    const name = tool?.name ?? 'that does not exist' // log no invented names
    if (error) log('WARNING', `tool ${name}: ${describe(error)}${placeOf(error)}`)
  })
  const data = stored as Record<string, JSONValue>
  agent.loadSnapshot({ scope: 'agent', schemaVersion: '1.0', createdAt: '', data, appData: {} })
  return agent
}

/** Run the agent. Throws AgentError unless it finished or waits for approvals. */
async function stream(runtime: Runtime, agent: Agent, stage: Stage): Promise<void> {
  const { turn, answers } = stage
  const stop = turn.signal
  const outputs = new Set<string>() // ids of output calls
  let size = 0
  // The messages of a resumed turn lack its last step, which the SDK counts.
  const steps = stage.data.messages.slice(stage.at) as MessageData[]
  const earlier = steps.filter(({ role }) => role === 'assistant').length
  const limits = { turns: Math.max(1, runtime.settings.maxSteps - earlier) }
  // A cancelSignal would keep listeners that a tool does not remove.
  stop.addEventListener('abort', () => agent.cancel())
  const input = (answers as InterruptResponseContent[] | undefined) ?? promptOf(stage)
  const { output } = turn.request
  const schema = output && { structuredOutputSchema: output }
  const events = agent.stream(input, { limits, ...schema })
  let next
  try {
    for (next = await events.next(); !next.done; next = await events.next()) {
      if (mustPause()) await pause()
      stop.throwIfAborted()
      const event = next.value.type === 'modelStreamUpdateEvent' ? next.value.event : null
      if (event) turn.model ||= runtime.settings.model
      if (event?.type === 'modelContentBlockDeltaEvent') {
        if (event.delta.type === 'textDelta') size += Buffer.byteLength(event.delta.text)
        if (event.delta.type === 'toolUseInputDelta') size += Buffer.byteLength(event.delta.input)
        if (event.delta.type === 'reasoningContentDelta') {
          const { text = '' } = event.delta
          size += Buffer.byteLength(text)
          if (runtime.settings.reasoning) await turn.reason(text)
        }
        const isTooLong = size > runtime.settings.maxReplyBytes
        if (isTooLong) throw new AgentError('reply_incomplete', '', 'MAX_REPLY_BYTES')
      }
      if (event?.type === 'modelContentBlockDeltaEvent' && event.delta.type === 'textDelta') {
        if (!output) await turn.say(event.delta.text.toWellFormed())
      }
      if (next.value.type === 'toolStreamUpdateEvent') {
        await turn.progress(next.value.event.data) // skips events of an agent tool
      }
      if (next.value.type === 'messageAddedEvent') {
        for (const use of toolsOf(next.value.message)) {
          if (mustPause()) await pause()
          if ('input' in use && use.name === OUTPUT_TOOL) outputs.add(use.id)
          if (!outputs.has(use.id)) await turn.emit(use)
        }
      }
    }
  } catch (error) {
    if (error instanceof MaxTokensError) throw new AgentError('reply_incomplete', '', 'maxTokens')
    const agentError = causesOf(error).find((cause) => cause instanceof AgentError)
    throw agentError ?? new AgentError('model_failed', '', describe(error), { cause: error })
  } finally {
    // End the SDK's spans of a cancelled turn, without waiting.
    if (!next?.done) void events.return(undefined as never).catch(() => {})
  }
  const { stopReason, lastMessage } = next.value
  if (stopReason === 'interrupt') turn.waiting = waitingCalls(agent)
  for (const call of turn.waiting) await turn.emit(call)
  if (turn.waiting.length > 0) return
  if (stopReason === 'guardrailIntervened') throw new AgentError('guardrail_intervened')
  if (stopReason !== 'endTurn' && stopReason !== 'stopSequence') {
    // Do not log unknown reasons, which are provider text.
    throw new AgentError('reply_incomplete', '', STOPS.includes(stopReason) ? stopReason : 'other')
  }
  const texts = lastMessage.content.map((block) => (block.type === 'textBlock' ? block.text : ''))
  if (isBlank(texts.join(''))) throw new AgentError('empty_reply')
}

/** Return the prompt of a turn, with its files. */
function promptOf({ turn, repeatedFiles }: Stage): string | ContentBlock[] {
  const { files } = turn.request
  const content = repeatedFiles as MessageData['content']
  const repeated = Message.fromMessageData({ role: 'user', content }).content
  const parts = files.length > 0 ? toParts(files) : repeated
  return parts.length > 0 ? [new TextBlock(turn.prompt), ...parts] : turn.prompt
}

/** Return the interrupted calls; a call with a result has run or was denied. */
function waitingCalls(agent: Agent): ToolCall[] {
  const { data } = agent.takeSnapshot({ include: ['interrupts'] })
  const interrupted = data.interrupts as unknown as Interrupted
  const { assistantMessageData, completedToolResults } = interrupted.pendingToolExecution
  const calls = [...toolsOf(Message.fromMessageData(assistantMessageData))]
  return calls.filter((call): call is ToolCall => {
    const hasResult = Object.hasOwn(completedToolResults, call.id)
    return 'input' in call && !hasResult && interruptsOf(interrupted, call.id).length > 0
  })
}

/**
 * Return the ids of a call's unanswered interrupts.
 *
 * The SDK keeps answered interrupts until the step ends. Compare whole ids, because a call id may
 * contain another.
 */
export function interruptsOf({ interrupts }: Interrupted, callId: string): string[] {
  return Object.entries(interrupts).flatMap(([id, { name, response }]) => {
    const isOfCall = SOURCES.some((source) => id === `${source}:${callId}:${name}`)
    return isOfCall && response === undefined ? [id] : []
  })
}

/** Yield the tool calls and results in a message. */
export function* toolsOf(
  message: Pick<Message, 'content' | 'metadata'>,
): Generator<ToolCall | ToolResult> {
  const { refused = {} } = marksOf(message)
  for (const block of message.content) {
    if (block.type === 'toolUseBlock') {
      const { toolUseId: id, name } = block
      // Use the received text instead of `{}`. An id may be the name of a built-in property.
      const input = Object.hasOwn(refused, id) ? refused[id] : block.input
      yield { id, name, input }
    } else if (block.type === 'toolResultBlock') {
      const text = block.content.map(textOf).join('\n')
      const [first, ...more] = block.content
      const json = first?.type === 'jsonBlock' && more.length === 0 && { value: first.json }
      const files = filesOf(block.content)
      const isError = block.status === 'error'
      yield { id: block.toolUseId, text, isError, ...json, ...(files.length > 0 && { files }) }
    }
  }
}

/** Return a part of a result as text; a file becomes its type, as in `[image]`. */
function textOf(part: ToolResultContent): string {
  if (part.type === 'textBlock') return part.text
  return part.type === 'jsonBlock' ? JSON.stringify(part) : `[${part.type.replace('Block', '')}]`
}
