// Runs the AI SDK agent of a turn on a copy of the session.

import { generateText, isStepCount, NoSuchToolError, Output } from 'ai'
import type { FilePart, ModelMessage, StepResult, ToolSet } from 'ai'

import { Shortening } from './models/context_length.ts'
import { AgentError, type File, isBlank, Source, type Turn } from './contract.ts'
import { mustPause, pause, withinTime } from './deadline.ts'
import { filesIn, toParts } from './file_parts.ts'
import { describe, log, placeOf } from './log.ts'
import { Calls, checkMessages, restored, selfContained } from './messages.ts'
import { type Part, textOf as textOfOutput } from './echo_model.ts'
import type { Options, Runtime } from './modules.ts'
import type { Stage, TurnAnswer } from './sessions/sessions.ts'
import { AcceptedTypes } from './models/rejected_files.ts'
import { ShorterPrompts } from './models/shortening.ts'
import { modelError, streaming } from './models/streaming.ts'

type ToolOutput = {
  toolCallId: string
  toolName: string
  input?: unknown
  output?: unknown
  error?: unknown
}
type ContentPart = Exclude<ModelMessage['content'], string>[number]
const DELTAS = new Set(['text-delta', 'reasoning-delta', 'tool-input-delta'])
type Call = Parameters<typeof generateText>[0]
type TurnOptions = Options &
  Pick<Call, 'prepareStep' | 'onToolExecutionEnd' | 'maxRetries'> & { producer?: () => string }

/** Run the agent for at most `seconds`; return the new snapshot and the messages of the turn. */
export async function answerTurn(
  runtime: Runtime,
  stage: Stage,
  seconds: number,
): Promise<TurnAnswer> {
  const { at, turn } = stage
  const committed = stage.data.messages as ModelMessage[] // checked by the store
  const last = (stage.answers as ModelMessage | undefined) ?? promptOf(stage)
  const staged = restored([...committed, last])
  const shortening = new Shortening(stage)
  const prompts = new ShorterPrompts(shortening)
  const responses = await withinTime(seconds, turn.signal, (stop) => {
    turn.signal = stop
    return stream(runtime, stage, staged, prompts)
  }).finally(() => shortening.report())
  const turnMessages = prompts.cut([...staged.slice(at), ...responses])
  const isWaiting = turn.waiting.length > 0
  const newMessages = isWaiting ? turnMessages : selfContained(turnMessages)
  const history = stage.data.messages.slice(0, stage.at) as ModelMessage[]
  checkMessages(newMessages, history, isWaiting)
  // Store no system prompt: each turn uses the current SYSTEM_PROMPT.
  const data = { messages: [...history, ...newMessages] }
  const created_at = new Date().toISOString()
  return { snapshot: { scope: 'agent', schema_version: '1.0', created_at, data }, newMessages }
}

/** Return the prompt of a turn, with its files. */
function promptOf({ turn, repeatedFiles }: Stage): ModelMessage {
  const files = toParts(turn.request.files)
  const parts = files.length > 0 ? files : (repeatedFiles as FilePart[])
  if (parts.length === 0) return { role: 'user', content: turn.prompt }
  return { role: 'user', content: [{ type: 'text', text: turn.prompt }, ...parts] }
}

/** Run the agent and return the messages of its replies. Throws AgentError. */
async function stream(
  runtime: Runtime,
  { turn, at }: Stage,
  staged: ModelMessage[],
  prompts: ShorterPrompts,
): Promise<ModelMessage[]> {
  const stop = turn.signal
  const { producer, maxRetries = 2, ...options } = runtime.prepare(turn) as TurnOptions
  const { SYSTEM_PROMPT, TOOL_APPROVAL = {}, FINAL_TOOLS = [] } = runtime.agent
  const { output } = turn.request
  const final = output ? [] : FINAL_TOOLS
  const calls = new Calls(staged, options.tools, runtime.settings)
  const { maxSteps } = runtime.settings
  const stepsLeft = maxSteps - staged.slice(at).filter(({ role }) => role === 'assistant').length
  const accepted = new AcceptedTypes(runtime.fileTypes, turn.request.files)
  const failures: unknown[] = [] // of callbacks, whose errors the SDK drops
  const ended = new Set<string>() // ids of calls whose results were emitted
  let size = 0
  const onPart = async (sent: Part) => {
    if (mustPause()) await pause()
    if (sent.type !== 'stream-start' && sent.type !== 'error') turn.model ||= runtime.settings.model
    const part = calls.repair(sent)
    if ('delta' in part && DELTAS.has(part.type)) {
      size += Buffer.byteLength(part.delta)
      const isTooLong = size > runtime.settings.maxReplyBytes
      if (isTooLong) throw new AgentError('reply_incomplete', '', 'MAX_REPLY_BYTES')
    }
    if (part.type === 'text-delta') {
      if (!output) await turn.say(part.delta.toWellFormed())
    } else if (part.type === 'reasoning-delta') {
      if (runtime.settings.reasoning) await turn.reason(part.delta)
    } else if (part.type === 'source' && part.sourceType === 'url') {
      await turn.emit(new Source(part.url, part.title))
    } else if (part.type === 'tool-call') {
      await turn.emit({ id: part.toolCallId, name: part.toolName, input: calls.shown(part) })
    } else if (part.type === 'tool-result') {
      const { toolCallId, toolName, result, isError } = part // the provider ran the tool
      const output = isError ? { error: result } : { output: result }
      await emitOutput(turn, options.tools, calls, { toolCallId, toolName, ...output })
    } else if (part.type === 'finish') {
      const { inputTokens, outputTokens } = part.usage
      turn.count({
        inputTokens: inputTokens.total ?? 0,
        cachedTokens: inputTokens.cacheRead ?? 0,
        outputTokens: outputTokens.total ?? 0,
      })
    }
    return part
  }
  const read = (model: Options['model']) => {
    return streaming(model, stop, onPart, prompts, { retries: maxRetries, accepted, producer })
  }
  /** End the turn with a tool's result as the reply. */
  const end = async (result: string, messages: readonly ModelMessage[]) => {
    const content = calls.cut(result)
    await turn.say(content)
    const reply: ModelMessage = { role: 'assistant', content }
    return [...calls.mend(messages), reply]
  }
  let approved: [result: string, messages: readonly ModelMessage[]] | undefined
  try {
    failMissing(options.tools, staged)
    const answer = await generateText({
      instructions: SYSTEM_PROMPT,
      toolApproval: TOOL_APPROVAL,
      messages: staged,
      toolCallConcurrency: runtime.settings.maxToolsAtOnce,
      stopWhen: [
        isStepCount(stepsLeft),
        hasFailed,
        ({ steps }) => textOfFinal(final, steps.at(-1)) !== undefined,
      ],
      abortSignal: stop,
      ...(output && { output: Output.object({ schema: output }) }),
      ...options,
      tools: withProgress(options.tools, turn),
      maxRetries: 0, // `streaming` retries
      model: read(options.model),
      prepareStep: async (step) => {
        await emitInvalid(turn, options.tools, calls, step.steps.at(-1))
        const all = step.messages // committed messages need no repair
        const newMessages = all.slice(staged.length)
        const isFirst = step.stepNumber === 0
        const added = all.slice(staged.length - 1).flatMap(partsOf)
        await emitAdded(turn, options.tools, calls, isFirst ? added : added.filter(isDenied), ended)
        // The SDK runs approved calls before the first step, but calls `stopWhen` only after steps.
        const result = isFirst ? textOfAnswered(final, all) : undefined
        if (result !== undefined) {
          approved = [result, newMessages]
          throw new Error('an answered call ends the turn')
        }
        if (stepsLeft < 1) throw new AgentError('reply_incomplete', '', `${maxSteps} steps`)
        const mended = [...all.slice(0, staged.length), ...calls.mend(newMessages)]
        const more = await options.prepareStep?.({ ...step, messages: mended })
        const messages = more?.messages ? calls.mend(more.messages) : mended
        const model = more?.model && { model: read(more.model) }
        return { ...more, messages, ...model }
      },
      onToolExecutionEnd: async (event) => {
        ended.add(event.toolOutput.toolCallId)
        const emitted = emitOutput(turn, options.tools, calls, event.toolOutput)
        await emitted.catch((error) => failures.push(error))
        await options.onToolExecutionEnd?.(event)
      },
    })
    if (failures.length > 0) throw failures[0]
    const { finalStep, responseMessages } = answer
    // Do not emit the calls of a failed answer.
    const isBad = hasFailed({ steps: [finalStep] })
    if (!isBad) {
      await emitInvalid(turn, options.tools, calls, finalStep)
      const denied = responseMessages.flatMap(partsOf).filter(isDenied)
      await emitAdded(turn, options.tools, calls, denied, ended)
    }
    const { finishReason, rawFinishReason, text, toolCalls, content } = finalStep
    const asked = content.flatMap((part) => {
      const isAsked = part.type === 'tool-approval-request' && !part.isAutomatic
      return isAsked ? [part.toolCall.toolCallId] : []
    })
    turn.waiting = toolCalls.flatMap(({ toolCallId: id, toolName: name, input }) => {
      return asked.includes(id) ? [{ id, name, input }] : []
    })
    const messages = calls.mend(responseMessages)
    if (turn.waiting.length > 0) return messages
    const result = textOfFinal(final, finalStep)
    if (result !== undefined) return end(result, responseMessages)
    if (rawFinishReason === 'guardrail_intervened') throw new AgentError(rawFinishReason)
    // A reply without calls is complete, whatever reason the model gives.
    const isOver = !isBad && rawFinishReason !== 'pause_turn'
    if (!isOver || toolCalls.some((call) => !call.providerExecuted)) {
      throw new AgentError('reply_incomplete', '', finishReason)
    }
    if (isBlank(text)) throw new AgentError('empty_reply')
    if (output) {
      turn.output = answer.output
      await turn.say(text)
    }
    return messages
  } catch (error) {
    if (approved) return end(...approved)
    throw modelError(error)
  }
}

/** Return the first text in the results of final tools, in the order of the calls. */
function textOfFinal(names: readonly string[], step?: StepResult<ToolSet>): string | undefined {
  const results = step?.toolResults.filter(({ toolName }) => names.includes(toolName)) ?? []
  const texts = results.map(({ output }) => textOf(output))
  return texts.find((text) => !isBlank(text))?.toWellFormed()
}

/** Return the first text of final tools in an answered step, in the order of the calls. */
function textOfAnswered(names: readonly string[], messages: ModelMessage[]): string | undefined {
  const texts = new Map<string, string>() // by call id
  const last = messages.findLastIndex(({ role }) => role === 'assistant')
  for (const part of messages.slice(last).flatMap(partsOf)) {
    if (part.type === 'tool-call') texts.set(part.toolCallId, '')
    if (part.type !== 'tool-result' || !names.includes(part.toolName)) continue
    const { output } = part
    const hasText = output.type === 'text' || output.type === 'json'
    if (hasText) texts.set(part.toolCallId, textOf(output.value))
  }
  return [...texts.values()].find((text) => !isBlank(text))?.toWellFormed()
}

/** Return the parts of a message with a list of parts. */
function partsOf({ content }: ModelMessage): readonly ContentPart[] {
  return typeof content === 'string' ? [] : content
}

/** Add error results for approved calls of missing tools, for which the SDK adds none. */
function failMissing(tools: Options['tools'], staged: readonly ModelMessage[]): void {
  const answer = staged.at(-1)
  if (answer?.role !== 'tool') return
  const approved = answer.content.flatMap((part) => {
    return part.type === 'tool-approval-response' && part.approved ? [part.approvalId] : []
  })
  const parts = staged.flatMap(partsOf)
  const ids = parts.flatMap((part) => {
    const isApproved = part.type === 'tool-approval-request' && approved.includes(part.approvalId)
    return isApproved ? [part.toolCallId] : []
  })
  for (const part of parts) {
    if (part.type !== 'tool-call' || !ids.includes(part.toolCallId)) continue
    const { toolCallId, toolName } = part
    if (tools[toolName]?.execute) continue
    const availableTools = Object.keys(tools)
    const { message: value } = new NoSuchToolError({ toolName, availableTools })
    const output = { type: 'error-text' as const, value }
    answer.content.push({ type: 'tool-result', toolCallId, toolName, output })
  }
}

/** Emit the results of answered or denied calls that did not run; log failures of the approved. */
async function emitAdded(
  turn: Turn,
  tools: object,
  calls: Calls,
  added: readonly ContentPart[],
  ended: Set<string>,
): Promise<void> {
  for (const part of added) {
    if (part.type !== 'tool-result' || ended.has(part.toolCallId)) continue
    const { toolCallId: id, toolName, output } = part
    ended.add(id)
    await turn.emit({ id, text: calls.cut(textOfOutput(output)), isError: true })
    if (!isDenied(part)) logFailure(tools, toolName, 'invalid call')
  }
}

function isDenied(part: ContentPart): boolean {
  return part.type === 'tool-result' && part.output.type === 'execution-denied'
}

/** Return a tool's output as text. */
function textOf(output: unknown): string {
  return typeof output === 'string' ? output : JSON.stringify(output ?? null)
}

/** Emit the values of generator tools as progress; the last value is the result. */
function withProgress(tools: Options['tools'], turn: Turn): Options['tools'] {
  const entries = Object.entries(tools).map(([name, tool]) => {
    const { execute } = tool
    if (!execute) return [name, tool]
    const run: typeof execute = async (...args) => {
      const result = execute(...args)
      if (!isIterable(result)) return result
      let last: unknown
      for await (const value of result) {
        last = value
        await turn.progress(value)
      }
      return last
    }
    return [name, { ...tool, execute: run }]
  })
  return Object.fromEntries(entries)
}

function isIterable(value: unknown): value is AsyncIterable<unknown> {
  return typeof value === 'object' && value !== null && Symbol.asyncIterator in value
}

/** Emit a tool's result, or emit and log its failure. */
async function emitOutput(
  turn: Turn,
  tools: Options['tools'],
  calls: Calls,
  result: ToolOutput,
): Promise<void> {
  if (turn.signal.aborted) return // a tool may end after its turn
  const { toolCallId: id, toolName, output, error } = result
  if (!('error' in result)) {
    const whole = textOf(output)
    const text = calls.cut(whole)
    const isValue = typeof output !== 'string' && text === whole
    const value = isValue && { value: output ?? null }
    const files = await filesOf(tools, result)
    return turn.emit({ id, text, isError: false, ...value, ...(files.length > 0 && { files }) })
  }
  await turn.emit({ id, text: calls.cut(String(error)), isError: true })
  logFailure(tools, toolName, describe(error) + placeOf(error))
}

/** Return the files in a result, as the tool shows them to the model. */
async function filesOf(tools: Options['tools'], result: ToolOutput): Promise<File[]> {
  const { toolCallId, toolName, input, output } = result
  const shown = await tools[toolName]?.toModelOutput?.({ toolCallId, input, output })
  return shown?.type === 'content' ? filesIn({ content: shown.value }) : []
}

/** Emit and log the invalid calls of a step; the SDK informs the model. */
async function emitInvalid(
  turn: Turn,
  tools: object,
  calls: Calls,
  step?: StepResult<ToolSet>,
): Promise<void> {
  for (const call of step?.toolCalls ?? []) {
    if (!call.invalid || call.providerExecuted) continue
    if (mustPause()) await pause()
    const refused = calls.refused.get(call.toolCallId)
    const text = refused?.text ?? (call.error as Error).message
    await turn.emit({ id: call.toolCallId, text, isError: true })
    const isNamed = refused?.isNamed ?? true
    const kind = refused?.kind ?? 'invalid call'
    if (kind) logFailure(tools, isNamed ? call.toolName : '', kind)
  }
}

function logFailure(tools: object, toolName: string, kind: string): void {
  // Do not log invented names.
  const name = Object.hasOwn(tools, toolName) ? toolName : 'that does not exist'
  log('WARNING', `tool ${name}: ${kind}`)
}

/** Whether the last step failed, so that the loop must stop. */
function hasFailed({ steps }: { steps: { finishReason: string }[] }): boolean {
  return !['stop', 'tool-calls'].includes(steps.at(-1)?.finishReason ?? '')
}
