// What of long-term memory a model is shown, and when. Make this file your own.
//
// A function that throws costs no turn: what it is for is not shown, with a warning in the log.

import { type Hit, type InjectionContext, memoryBlock } from './recall.ts'

type Trigger = 'userTurn' | 'everyTurn' | ((context: InjectionContext) => boolean)

// 'userTurn': what one search at the first model call of a turn finds is shown in each of its
// calls. 'everyTurn': each model call has a search of its own. Or a function: whether a call is
// shown any.
export const TRIGGER = 'userTurn' as Trigger

/** The most memories to show; null: as many as the files of the collections allow. */
export const MAX_ENTRIES: number | null = null

/** Return the text to search for; for '' nothing is searched, and no memory is shown. */
export function query({ prompt, said }: InjectionContext): string {
  return TRIGGER === 'userTurn' ? prompt : said || prompt
}

/** Return memories, best first, as text for a model. Users wrote them: escape their texts. */
export function formatMemories(hits: readonly Hit[]): string {
  return memoryBlock(hits)
}

/**
 * Return further text for a model call that is no memory, such as the time; '' for none.
 *
 * It stands behind the prompt where memories would, and never becomes part of the session.
 */
export function notice(_context: InjectionContext): string {
  return ''
}
