// Select the memories and the owner's notice for each model call of a turn.

import { isBlank } from '../contract.ts'
import { log } from '../log.ts'
import { locateFailure } from './base.ts'
import type { Hit, InjectionContext } from './hits.ts'
import type { MemoryTurn, Injection } from './recall.ts'

type Search = (query: string) => Promise<readonly Hit[]>

/**
 * Return the memories and the notice for the next model call of a turn. Never throws.
 *
 * `said` is the text of the model's previous step in this turn.
 */
export async function show(
  turn: MemoryTurn,
  call: { prompt: string; said: string; messages: readonly unknown[] },
  search: Search,
): Promise<Injection> {
  turn.calls += 1
  const context: InjectionContext = { ...call, who: turn.identity, number: turn.calls }
  let hits: readonly Hit[] = []
  const texts: string[] = []
  let notice = ''
  try {
    const memories = await searchOnce(turn, context, search)
    if (memories.length > 0) texts.push(String(turn.policy.formatMemories(memories)))
    hits = memories
  } catch (error) {
    log('WARNING', `no memories are shown: own_memory failed: ${locateFailure(error)}`)
  }
  try {
    notice = String(turn.policy.notice(context) ?? '')
    texts.push(notice)
  } catch (error) {
    log('WARNING', `no notice is shown: own_memory failed: ${locateFailure(error)}`)
  }
  const text = texts.filter((part) => !isBlank(part)).join('\n\n')
  return turn.recordInjection({ hits, text, notice })
}

async function searchOnce(
  turn: MemoryTurn,
  context: InjectionContext,
  search: Search,
): Promise<readonly Hit[]> {
  const { policy } = turn
  if (!policy.isShown(context)) return []
  let memories = policy.searchesEachCall ? null : turn.sharedSearch
  if (!memories) {
    const query = policy.query(context)
    if (isBlank(query)) return []
    memories = search(query)
    // Later model calls of the turn await the same search.
    if (!policy.searchesEachCall) turn.sharedSearch = memories
  }
  return (await memories).slice(0, policy.maxEntries ?? undefined)
}
