// Routes of your own, besides POST /invocations and GET /ping. Updates leave this file alone.

import type { Routes } from './harness/index.ts'

// By method and path. Host, Origin, API_TOKEN and actor are checked before a handler is called.
export const ROUTES: Routes = {}
