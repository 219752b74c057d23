// Approvals of the AI SDK: `toolApproval`, or tools with `needsApproval`.

import type { ModelMessage, ToolApprovalRequest, ToolApprovalResponse, ToolModelMessage } from 'ai'

import type { Options } from '../capability.ts'

type Reasons = ReadonlyMap<string, string | null>
/** The messages of a turn that waits. */
type Waiting = { readonly messages: readonly unknown[] }
type Part = ToolApprovalRequest | { type: 'text' } // or another part

/** Return the message with which the turn goes on. */
export function answers({ messages }: Waiting, reasons: Reasons): ToolModelMessage {
  const answered: ToolApprovalResponse[] = []
  // The last message may have results of the calls beside those that wait.
  const parts = (messages as ModelMessage[]).flatMap(({ content }) =>
    typeof content === 'string' ? [] : (content as Part[]),
  )
  for (const part of parts) {
    if (part.type !== 'tool-approval-request' || !reasons.has(part.toolCallId)) continue
    const { approvalId, toolCallId } = part
    const reason = reasons.get(toolCallId)
    const type = 'tool-approval-response'
    if (reason) answered.push({ type, approvalId, approved: false, reason })
    else answered.push({ type, approvalId, approved: true })
  }
  return { role: 'tool', content: answered }
}

/** Do nothing: the SDK tells the model the reasons. */
export function prepare(_reasons: Reasons, _options: Options): void {}
