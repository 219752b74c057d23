// A memory store of the owner, of which the AI SDK has none.

/** A store of which `forget` erases an actor. */
export interface OwnStore {
  readonly name: string
  readonly writable?: boolean
  readonly erase?: (actor: string) => unknown
}
