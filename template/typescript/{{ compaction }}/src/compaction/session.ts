// A session in which a summary takes the place of the messages that it no longer holds.

import type { Turn } from '../contract.ts'
import { type Session, serialize } from '../sessions.ts'

/**
 * Return what takes the place of dropped messages, of which the turns begin at `at`.
 *
 * `turns` is the number of the last turn that is dropped.
 */
export type Compact = (
  turn: Turn,
  dropped: unknown[],
  at: number,
  turns: number,
) => Promise<unknown[]>

/** Return a class of sessions whose summary stands in front of their turns: the first is at 2. */
export function compacted(Base: typeof Session, compact: Compact): typeof Session {
  return class Compacted extends Base {
    /** Drop the oldest turns, and put a summary of them in front of the others. */
    override async shorten(turn: Turn, least: number): Promise<void> {
      const { messages } = this.data
      const at = this.turns[0]?.at ?? 0
      await super.shorten(turn, least)
      const dropped = messages.slice(0, messages.length - this.data.messages.length)
      if (dropped.length === 0) return
      const last = turn.number - 1 - this.turns.length
      const summary = await compact(turn, dropped, at, last)
      this.data.messages = [...summary, ...this.data.messages]
      this.turns = this.turns.map((start) => ({ ...start, at: start.at + summary.length }))
    }

    /** Save; if it is too large, without its oldest turns, but with the summary if it fits. */
    override async save(...[taken, last, saved]: Parameters<Session['save']>): Promise<string> {
      const { maxBytes } = this.sessions.store
      let { data } = taken
      while (last.turns[0]?.at && last.turns[1]) {
        const text = serialize({ ...taken, data, app_data: last })
        if (Buffer.byteLength(text) <= maxBytes) break
        const [{ at: front }, { at: end }] = [last.turns[0], last.turns[1]]
        const messages = [...data.messages.slice(0, front), ...data.messages.slice(end)]
        data = { ...data, messages }
        last.turns = last.turns.slice(1).map((start) => ({ ...start, at: start.at - end + front }))
      }
      return super.save({ ...taken, data }, last, saved)
    }
  }
}
