// The setting of approvals.

import { integer } from '../settings.ts'

export const APPROVAL_SETTINGS = {
  /** The time limit of a pending turn. */
  waitingSeconds: integer(86400, 1, 31_536_000),
}
