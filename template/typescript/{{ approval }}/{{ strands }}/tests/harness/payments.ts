// A tool that waits for a person.

import { tool } from '@strands-agents/sdk'
import { HumanInTheLoop } from '@strands-agents/sdk/vended-interventions/hitl'
import { z } from 'zod'

import { Capability, type Options } from '../../src/harness/capability.ts'

/** Has the tool `pay`, which runs only if it is approved, unless its gate is lifted. */
export class Payments extends Capability {
  /** The amounts that were paid. */
  readonly paid: number[] = []
  needsApproval = true
  isGone = false

  override tools() {
    if (this.isGone) return []
    const inputSchema = z.object({ amount: z.number() })
    const callback = ({ amount }: { amount: number }) => {
      this.paid.push(amount)
      return 'paid'
    }
    return [tool({ name: 'pay', description: 'Pay an amount.', inputSchema, callback })]
  }

  override prepare(_turn: unknown, options: Options): void {
    if (this.needsApproval) Object.assign(options, { interventions: [new HumanInTheLoop()] })
  }
}
