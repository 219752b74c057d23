// Metadata of what is recorded, for the filters of a search. Make this file your own.

import type { Metadata, Utterance } from './base.ts'
import type { Who } from './namespaces.ts'

/**
 * Return keys and values for a text that a turn records; {} for none.
 *
 * A memory finds records by the keys that it indexes. At most 15 keys of at most 128 characters,
 * and values of at most 256: letters, digits, spaces and . _ : / = + @ -, and no _ in front of a
 * key. What breaks this rule is left out, with a warning in the log; the text is recorded.
 */
export function metadataOf(_who: Who, _utterance: Utterance): Metadata {
  return {}
}
