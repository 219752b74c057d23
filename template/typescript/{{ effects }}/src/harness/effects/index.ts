// Side effects of tools that happen once: after the commit, or in the turn.

export { afterCommit, once } from './adapter.ts'
export { type Effect, type Reconcile, Rejected } from './functions.ts'
