// A capability that notes how turns end, and one that sets an option that no turn can honour.

import { setTimeout as sleep } from 'node:timers/promises'

import { Capability, type CapabilityClass, type Options, type Turn } from './harness/index.ts'

export const OWN_SETTINGS = {}

/** By session: the hook, and the outcome that it saw. */
export const seen: Record<string, [hook: string, outcome: string][]> = {}

function note(hook: string, { sessionId, outcome }: Turn): void {
  seen[sessionId] = [...(seen[sessionId] ?? []), [hook, outcome]]
}

class Watch extends Capability {
  override async around(turn: Turn, run: () => Promise<unknown>): Promise<unknown> {
    if (turn.prompt.startsWith('Refuse.')) throw new TypeError('a capability failed')
    note('before', turn)
    try {
      return await run()
    } finally {
      note('around', turn)
    }
  }

  override ended(turn: Turn): Promise<void> {
    note('ended', turn)
    if (turn.prompt.startsWith('Fail at once.')) throw new Error('a capability failed')
    if (turn.prompt.startsWith('Hang.')) return new Promise(() => {})
    if (turn.prompt.startsWith('Pause.')) return sleep(500)
    const isFailing = turn.prompt.startsWith('Fail late.')
    return isFailing ? Promise.reject(new Error('a capability failed')) : Promise.resolve()
  }

  override prepare(turn: Turn, options: Options): void {
    if (turn.prompt.startsWith('Refused.')) options['REFUSED'] = 1
  }
}

export const OWN_CAPABILITIES: CapabilityClass[] = [Watch]
