// The capability that reports running and waiting turns to an autoscaler.

import type { IncomingMessage, ServerResponse } from 'node:http'

import { Capability, type Routes } from '../capability.ts'
import type { Runtime } from '../modules.ts'

const TYPE = 'text/plain; version=0.0.4; charset=utf-8'

/** Adds GET /metrics in Prometheus text format, without a token and without personal data. */
export class Metrics extends Capability {
  override publicRoutes(): Routes {
    return { 'GET /metrics': metrics }
  }
}

function metrics(_: IncomingMessage, response: ServerResponse, { turns }: Runtime): void {
  const lines = [
    '# HELP agent_turns Turns that run or wait in this process.',
    '# TYPE agent_turns gauge',
    `agent_turns ${turns.tasks.size}`,
  ]
  response.setHeader('Content-Type', TYPE).end(lines.map((line) => `${line}\n`).join(''))
}
