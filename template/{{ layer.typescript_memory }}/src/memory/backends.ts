// What a session store can do, whatever keeps it, and how it says that it failed.

/** What a store has of a session. Revisions are never used twice; null is one that it lacks. */
export interface Stored {
  readonly revision: string | null
  /** null: still the one of the revision that the caller knows. */
  readonly snapshot: string | null
}

/** What is stored is not of the expected revision; nothing was changed. */
export class Conflict extends Error {}

/** The store did not do it; `isCertain` when nothing can have been changed. */
export class Unavailable extends Error {
  readonly isCertain: boolean

  /** The text holds no secret: it is logged. */
  constructor(what: string, isCertain = false) {
    super(what)
    this.isCertain = isCertain
  }
}

/** The store has no such operation; the text says so to its owner. */
export class Unsupported extends Error {}

/**
 * The sessions of one agent in one collection. Every call is bounded in time.
 *
 * Each throws Unavailable. A checkpoint is a UUIDv7 in lower case; they sort by time.
 */
export interface Backend {
  /** What it contacts, without secrets. */
  readonly contact: string

  /** What is stored last, or in a checkpoint; null when there is nothing. */
  load(sessionId: string, known?: string | null, checkpoint?: string | null): Promise<Stored | null>

  /**
   * Replace what has the expected revision (null: nothing yet), and return the new one.
   *
   * With `checkpoint` the snapshot is then kept under that id too. Throws Conflict.
   */
  save(
    sessionId: string,
    snapshot: string,
    expected: string | null,
    checkpoint?: string | null,
  ): Promise<string | null>

  /** Keep what was saved under that id too, if `save` has not; failing is a warning. */
  keep(sessionId: string, snapshot: string, checkpoint: string): Promise<void>

  /**
   * Put what is stored last where nothing overwrites it, and return its name there.
   *
   * After that `load` finds nothing. Throws Conflict.
   */
  setAside(sessionId: string, revision: string | null): Promise<string>

  /** The ids of the checkpoints, oldest first. */
  checkpoints(sessionId: string): Promise<string[]>

  /** The names of what was set aside. */
  asides(sessionId: string): Promise<string[]>

  /** Delete all of the session, known or not. */
  end(sessionId: string): Promise<void>

  /** The ids of all sessions. Throws Unsupported. */
  sessions(): Promise<string[]>

  /** Close what is open. */
  close(): Promise<void>
}
