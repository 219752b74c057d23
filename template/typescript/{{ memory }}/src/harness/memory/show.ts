// Shows memories and the owner's notice to the model calls of a turn.

import { isBlank } from '../contract.ts'
import { log } from '../log.ts'
import { describeFailure } from './base.ts'
import type { Hit, InjectionContext } from './hits.ts'
import type { MemoryTurn, Shown } from './recall.ts'

type Search = (query: string) => Promise<readonly Hit[]>

/**
 * Return what the next model call of a turn is shown. It does not throw.
 *
 * `said` is the text of the model's last step in this turn.
 */
export async function show(
  turn: MemoryTurn,
  call: { prompt: string; said: string; messages: readonly unknown[] },
  search: Search,
): Promise<Shown> {
  turn.calls += 1
  const context: InjectionContext = { ...call, who: turn.identity, number: turn.calls }
  let hits: readonly Hit[] = []
  const texts: string[] = []
  let more = ''
  try {
    const found = await foundFor(turn, context, search)
    if (found.length > 0) texts.push(String(turn.policy.formatMemories(found)))
    hits = found
  } catch (error) {
    log('WARNING', `no memories are shown: own_memory failed: ${describeFailure(error)}`)
  }
  try {
    more = String(turn.policy.notice(context) ?? '')
    texts.push(more)
  } catch (error) {
    log('WARNING', `no notice is shown: own_memory failed: ${describeFailure(error)}`)
  }
  const text = texts.filter((shown) => !isBlank(shown)).join('\n\n')
  return turn.show({ hits, text, notice: more })
}

async function foundFor(
  turn: MemoryTurn,
  context: InjectionContext,
  search: Search,
): Promise<readonly Hit[]> {
  const { policy } = turn
  if (!policy.isShown(context)) return []
  let found = policy.searchesEachCall ? null : turn.first
  if (!found) {
    const wanted = policy.query(context)
    if (isBlank(wanted)) return []
    found = search(wanted)
    // Another model call of the turn may wait for it, too.
    if (!policy.searchesEachCall) turn.first = found
  }
  return (await found).slice(0, policy.maxEntries ?? undefined)
}
