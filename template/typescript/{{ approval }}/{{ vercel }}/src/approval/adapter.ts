// Approvals of the AI SDK: `toolApproval`, or tools with `needsApproval`.

import type { ModelMessage, ToolApprovalResponse, ToolModelMessage } from 'ai'

import type { Options } from '../capability.ts'
import type { Waiting } from './session.ts'

type Reasons = ReadonlyMap<string, string | null>

/** Return the message with which the turn goes on. */
export function answers({ messages }: Waiting, reasons: Reasons): ToolModelMessage {
  const { content } = messages.at(-1) as ModelMessage
  const answered: ToolApprovalResponse[] = []
  for (const part of typeof content === 'string' ? [] : content) {
    if (part.type !== 'tool-approval-request') continue
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
