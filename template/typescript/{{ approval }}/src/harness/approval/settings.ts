// The setting of approvals.

import { integer } from '../settings.ts'

export const APPROVAL_SETTINGS = {
  /** How long a turn can be pending. */
  waitingSeconds: integer(86400, 1, 31_536_000),
}
