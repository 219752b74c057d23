// A payment, an e-mail and a ticket.

import { tool } from '@strands-agents/sdk'
import { z } from 'zod'

import { Capability } from '../../src/harness/capability.ts'
import { afterCommit, once } from '../../src/harness/effects/index.ts'
import type { Receiver } from './receiver.ts'

/** Has tools that call a receiver. */
export class Shop extends Capability {
  receiver!: Receiver

  override tools() {
    return this.#tools
  }

  readonly #tools = [
    tool(
      once({
        name: 'pay',
        description: 'Pay an order.',
        inputSchema: z.object({ order: z.string() }),
        callback: (_, effect) => this.receiver.get('pay', effect),
        reconcile: (key) => this.receiver.reconcile(key),
      }),
    ),
    tool(
      afterCommit({
        name: 'send',
        description: 'Send an e-mail.',
        inputSchema: z.object({ to: z.string() }),
        callback: (_, effect) => this.receiver.get('send', effect),
      }),
    ),
    tool(
      afterCommit({
        name: 'ticket',
        description: 'Open a ticket.',
        inputSchema: z.object({ title: z.string() }),
        callback: (_, effect) => this.receiver.get('ticket', effect),
      }),
    ),
  ]
}
