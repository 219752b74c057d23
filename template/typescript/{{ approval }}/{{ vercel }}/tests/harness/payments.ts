// A tool that waits for a person.

import { tool } from 'ai'
import { z } from 'zod'

import { Capability, type Options } from '../../src/harness/capability.ts'
import type { NamedTool } from '../../src/harness/tools.ts'

/** Has the tool `pay`, which runs only if it is approved, unless its gate is lifted. */
export class Payments extends Capability {
  /** The amounts that were paid. */
  readonly paid: number[] = []
  needsApproval = true
  isGone = false

  override tools(): NamedTool[] {
    if (this.isGone) return []
    const inputSchema = z.object({ amount: z.number() })
    const execute = ({ amount }: { amount: number }) => {
      this.paid.push(amount)
      return 'paid'
    }
    return [['pay', tool({ description: 'Pay an amount.', inputSchema, execute })]]
  }

  override prepare(_turn: unknown, options: Options): void {
    if (this.needsApproval) Object.assign(options, { toolApproval: { pay: 'user-approval' } })
  }
}
