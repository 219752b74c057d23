// When committed turns are recorded, and which of their texts. Make this file your own.

import type { Turns, Utterance } from './base.ts'
import type { Who } from './namespaces.ts'

/**
 * So many turns of a session are recorded together. Or a function of the collection, the session
 * and the turns that wait: whether they are recorded now. They never wait longer than
 * MAX_WAIT_SECONDS, and not when their session or process ends; a killed process loses them.
 */
export const TRIGGER: number | ((collection: string, who: Who, turns: Turns) => boolean) = 1
export const MAX_WAIT_SECONDS = 600

/** Whether a text of a turn is recorded; one that throws is not, with a warning in the log. */
export function isRecorded(_who: Who, _utterance: Utterance): boolean {
  return true
}
