// A capability that notes how turns end, and one that sets an option that no turn can honour.

import { Capability, type CapabilityClass, type Options, type Turn } from './harness/index.ts'

export const OWN_SETTINGS = {}

/** By session: the hook, and the outcome that it saw. */
export const seen: Record<string, [hook: string, outcome: string][]> = {}

function note(hook: string, { sessionId, outcome }: Turn): void {
  seen[sessionId] = [...(seen[sessionId] ?? []), [hook, outcome]]
}

class Watch extends Capability {
  override async around(turn: Turn, run: () => Promise<unknown>): Promise<unknown> {
    note('before', turn)
    try {
      return await run()
    } finally {
      note('around', turn)
    }
  }

  override async ended(turn: Turn): Promise<void> {
    note('ended', turn)
    if (turn.prompt.startsWith('Fail late.')) throw new Error('a capability failed')
  }

  override prepare(turn: Turn, options: Options): void {
    if (turn.prompt.startsWith('Refused.')) options['REFUSED'] = 1
  }
}

export const OWN_CAPABILITIES: CapabilityClass[] = [Watch]
