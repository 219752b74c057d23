// The type of an owner's memory store. The AI SDK has no stores, so only `forget` uses it.

/** A store that `forget` can erase an actor from. */
export interface OwnStore {
  readonly name: string
  readonly writable?: boolean
  readonly erase?: (actor: string) => unknown
}
