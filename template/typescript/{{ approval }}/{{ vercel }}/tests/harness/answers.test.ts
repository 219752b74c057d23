// The caller gets the result of each answered call, even if the call does not run.

import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'

import { tool, type ToolApprovalStatus } from 'ai'
import { z } from 'zod'

import { Approval } from '../../src/harness/approval/capability.ts'
import { Answers } from '../../src/harness/approval/waiting.ts'
import { Capability, type Options } from '../../src/harness/capability.ts'
import type { Chunk, ToolResult } from '../../src/harness/contract.ts'
import type { NamedTool } from '../../src/harness/tools.ts'
import { captureLog, Client } from './client.ts'
import { reply, toolCall } from './script.ts'

const DAY = z.object({ day: z.string() })
const DATE = z.object({ day: z.string().transform((day) => new Date(day)) })

/** Has the tool `pay`. */
class Payments extends Capability {
  inputSchema: z.ZodType = DAY
  toolApproval: ToolApprovalStatus | (({ day }: z.infer<typeof DAY>) => ToolApprovalStatus) =
    'user-approval'
  isGone = false

  override tools(): NamedTool[] {
    if (this.isGone) return []
    const { inputSchema } = this
    return [['pay', tool({ description: 'Pay.', inputSchema, execute: () => 'paid' })]]
  }

  override prepare(_turn: unknown, options: Options): void {
    Object.assign(options, { toolApproval: { pay: this.toolApproval } })
  }
}

interface Case {
  /** The tool while its call waits. */
  before?: Partial<Payments>
  /** Changes of the tool before the answer. */
  after?: Partial<Payments>
  /** The reason of a denial. */
  reason?: string
}

/** Answer a call; return its only result, and the log lines about tools. */
async function answer(
  context: TestContext,
  { before = {}, after = {}, reason }: Case,
): Promise<{ result: ToolResult; lines: string[] }> {
  let payments!: Payments
  const script = [toolCall('pay', { day: '2026-01-01' }), reply('Done.')]
  const client = new Client(script, {}, (settings, load) => {
    payments = Object.assign(new Payments(settings, [], load), before)
    return [new Approval(settings, [], load), payments]
  })
  const { waiting = [] } = await client.say('Pay.', { session: 'ada' })
  Object.assign(payments, after)
  const reasons = new Map(waiting.map(({ id }) => [id, reason ?? null]))
  const results: ToolResult[] = []
  const emit = async (chunk: Chunk) => {
    if (typeof chunk === 'object' && 'isError' in chunk) results.push(chunk)
  }
  const log = captureLog(context)
  const request = new Answers({ sessionId: 'ada' }, reasons)
  const committed = await client.runtime.spawn(request, { emit })
  assert.equal(committed.reply, 'Done.')
  const [result] = results
  assert.ok(result)
  assert.equal(results.length, 1)
  return { result, lines: log.filter((line) => line.includes(' tool ')) }
}

test('an approved call has one result', async (context) => {
  const { result, lines } = await answer(context, {})
  assert.equal(result.text, 'paid')
  assert.equal(result.isError, false)
  assert.deepEqual(lines, [])
})

test('an approved call whose tool no longer accepts its input', async (context) => {
  const inputSchema = z.object({ amount: z.number() })
  const { result, lines } = await answer(context, { after: { inputSchema } })
  assert.match(result.text, /Invalid input for tool pay/)
  assert.equal(result.isError, true)
  assert.equal(lines.length, 1)
  assert.match(lines[0]!, /WARNING tool pay: invalid call$/)
})

test('an approved call whose schema transforms its input to a date', async (context) => {
  const { result, lines } = await answer(context, { before: { inputSchema: DATE } })
  assert.match(result.text, /Invalid input for tool pay/)
  assert.equal(result.isError, true)
  assert.equal(lines.length, 1)
})

test('an approved call whose tool is gone', async (context) => {
  const { result, lines } = await answer(context, { after: { isGone: true } })
  assert.match(result.text, /'pay'/)
  assert.equal(result.isError, true)
  assert.equal(lines.length, 1)
  assert.match(lines[0]!, /WARNING tool that does not exist: invalid call$/)
})

test('an approved call that the agent no longer allows', async (context) => {
  const { result, lines } = await answer(context, { after: { toolApproval: 'denied' } })
  assert.equal(result.text, 'Tool call execution denied.')
  assert.equal(result.isError, true)
  assert.deepEqual(lines, [])
})

test('a denied call', async (context) => {
  const { result, lines } = await answer(context, { reason: 'Not today.' })
  assert.equal(result.text, 'Denied by a person: Not today.')
  assert.equal(result.isError, true)
  assert.deepEqual(lines, [])
})

test('calls that the policy denies at once', async () => {
  const script = [toolCall('pay', { day: '2026-01-01' }), reply('Done.')]
  const both = [toolCall('pay', { day: '' }, 'no'), toolCall('pay', { day: '2026-01-02' }, 'ask')]
  const client = new Client([...script, both], {}, (settings, load) => {
    const payments = new Payments(settings, [], load)
    payments.toolApproval = ({ day }) => (day === '2026-01-02' ? 'user-approval' : 'denied')
    return [new Approval(settings, [], load), payments]
  })
  const text = 'Tool call execution denied.'
  const [, ...chunks] = await client.takeTurn('Pay.', 'ada')
  assert.deepEqual(chunks, [{ id: 'call', text, isError: true }, 'Done.'])
  const results = (await client.takeTurn('Pay both.', 'ada')).slice(2)
  assert.deepEqual(results, [{ id: 'no', text, isError: true }])
})
