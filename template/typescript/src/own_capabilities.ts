// Settings and capabilities of your own. Updates leave this file alone.

import type { CapabilityClass } from './capability.ts'

// Settings beside those of the agent, as in `ordersUrl: text('http://localhost:9000')` with `text`
// and `integer` of settings.ts; that one is read from ORDERS_URL.
export const OWN_SETTINGS = {}

// Classes that extend Capability of capability.ts. This file is loaded by every command: import
// clients in `open`.
export const OWN_CAPABILITIES: CapabilityClass[] = []
