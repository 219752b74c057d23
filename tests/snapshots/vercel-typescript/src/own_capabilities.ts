// Settings and capabilities of your own; docs/capabilities.md has one. Updates leave it alone.

import type { CapabilityClass } from './harness/index.ts'

// Made with `text` and `integer` of the harness: `ordersUrl` is the variable ORDERS_URL.
export const OWN_SETTINGS = {}

// Every command loads this file: import clients in `open`.
export const OWN_CAPABILITIES: CapabilityClass[] = []
