// Shows memories and the owner's notice to the model calls of a turn.

import { isBlank } from '../contract.ts'
import { log } from '../log.ts'
import { describeFailure } from './base.ts'
import { formatMemories, MAX_ENTRIES, notice, query, TRIGGER } from './injection.ts'
import type { Hit, InjectionContext, MemoryTurn, Shown } from './recall.ts'

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
  try {
    const hits = await hitsFor(turn, context, search)
    const more = notice(context)
    const texts = [hits.length > 0 ? formatMemories(hits) : '', more]
    const text = texts.filter((it) => !isBlank(it)).join('\n\n')
    return turn.show({ hits, text, notice: more })
  } catch (error) {
    const why = describeFailure(error)
    log('WARNING', `nothing is shown to the model: memory/injection failed: ${why}`)
    return turn.show({ hits: [], text: '', notice: '' })
  }
}

async function hitsFor(
  turn: MemoryTurn,
  context: InjectionContext,
  search: Search,
): Promise<readonly Hit[]> {
  if (typeof TRIGGER === 'function' && !TRIGGER(context)) return []
  const [first] = turn.searches.keys()
  const wanted = (TRIGGER === 'userTurn' && first) || query(context)
  if (isBlank(wanted)) return []
  // Another model call of the turn may wait for it, too.
  const found = turn.searches.get(wanted) ?? search(wanted)
  turn.searches.set(wanted, found)
  return (await found).slice(0, MAX_ENTRIES ?? undefined)
}
