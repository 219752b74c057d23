// A session in which a summary takes the place of the messages that it no longer holds.

import type { Turn } from '../contract.ts'
import { type Session, serialize } from '../sessions/sessions.ts'

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
    /**
     * Return where the first turn that fits begins; if none does, all become the summary.
     *
     * A single turn that is too large stays: each of its kind would need a summary.
     */
    protected override findCut(fits: (at: number) => boolean): number {
      const starts = this.turns.map(({ at }) => at)
      const [only = 0] = starts
      const end = starts.length === 1 ? only : this.data.messages.length
      return starts.find(fits) ?? end
    }

    /** Drop the oldest turns, and put a summary of them in front of the others. */
    override async shorten(turn: Turn, end: number): Promise<void> {
      const dropped = this.data.messages.slice(0, end)
      const at = this.turns[0]?.at ?? this.data.messages.length
      await super.shorten(turn, end)
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
