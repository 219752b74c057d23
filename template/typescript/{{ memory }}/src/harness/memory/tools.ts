// The name and the description of the tool that searches memories. Make this file your own.

/** The name of the tool that searches, which no other tool should have; null: there is none. */
export const SEARCH_TOOL = 'search_memory' as string | null

/** Its description, which those of the stores follow; null: the usual one. */
export const SEARCH_DESCRIPTION = null as string | null
