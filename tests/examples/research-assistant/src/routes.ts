// Routes of your own, besides POST /invocations and GET /ping. Updates leave this file alone.

import type { Routes } from './harness/index.ts'
import { exportSessions } from './sharing.ts'

// By method and path. Host, Origin and API_TOKEN are checked before a handler is called.
export const ROUTES: Routes = { 'GET /export': exportSessions }
