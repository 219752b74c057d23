// Approvals of the AI SDK: `toolApproval`, or tools with `needsApproval`.

import type { ModelMessage, ToolApprovalRequest, ToolApprovalResponse, ToolModelMessage } from 'ai'

type Reasons = ReadonlyMap<string, string | null>
/** The messages of a pending turn, and the framework's remaining state. */
type Waiting = { readonly messages: readonly unknown[]; readonly other: object }
type Part = ToolApprovalRequest | { type: 'text' } // or another part

/** Return the message that resumes the turn. */
export function answers({ messages }: Waiting, reasons: Reasons): ToolModelMessage {
  const answered: ToolApprovalResponse[] = []
  // The last message may also have results of other calls.
  const parts = (messages as ModelMessage[]).flatMap(({ content }) =>
    typeof content === 'string' ? [] : (content as Part[]),
  )
  for (const part of parts) {
    if (part.type !== 'tool-approval-request' || !reasons.has(part.toolCallId)) continue
    const { approvalId, toolCallId } = part
    const given = reasons.get(toolCallId)
    const type = 'tool-approval-response'
    const reason = given && `Denied by a person: ${given}`
    if (reason) answered.push({ type, approvalId, approved: false, reason })
    else answered.push({ type, approvalId, approved: true })
  }
  return { role: 'tool', content: answered }
}

/** Return the state unchanged: the SDK runs no denied call. */
export function withDenials({ other }: Waiting, _reasons: Reasons): object {
  return other
}
