// Settings and capabilities of your own; docs/capabilities.md has one. Updates leave it alone.

import type { CapabilityClass } from './harness/index.ts'

// Made with `string`, `integer` and others of the harness: `ordersUrl` is ORDERS_URL.
export const OWN_SETTINGS = {}

// Every command loads this file: import clients in `open`.
export const OWN_CAPABILITIES: CapabilityClass[] = []
