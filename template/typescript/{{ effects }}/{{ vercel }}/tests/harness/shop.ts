// A payment, an e-mail and a ticket.

import { tool } from 'ai'
import { z } from 'zod'

import { Capability } from '../../src/harness/capability.ts'
import { afterCommit, once } from '../../src/harness/effects/index.ts'
import type { NamedTool } from '../../src/harness/tools.ts'
import type { Receiver } from './receiver.ts'

/** Has tools that call a receiver. */
export class Shop extends Capability {
  receiver!: Receiver

  override tools(): NamedTool[] {
    return Object.entries(this.#tools)
  }

  readonly #tools = {
    pay: tool(
      once({
        name: 'pay',
        description: 'Pay an order.',
        inputSchema: z.object({ order: z.string() }),
        execute: (_, effect) => this.receiver.get('pay', effect),
        reconcile: (key) => this.receiver.reconcile(key),
      }),
    ),
    send: tool(
      afterCommit({
        name: 'send',
        description: 'Send an e-mail.',
        inputSchema: z.object({ to: z.string() }),
        execute: (_, effect) => this.receiver.get('send', effect),
      }),
    ),
    ticket: tool(
      afterCommit({
        name: 'ticket',
        description: 'Open a ticket.',
        inputSchema: z.object({ title: z.string() }),
        execute: (_, effect) => this.receiver.get('ticket', effect),
      }),
    ),
  }
}
