// Fixtures of your own, and the environment of all tests. Updates leave this file alone.

/** Variables that each test has, such as `{ ORDERS_URL: 'http://orders.test' }`. */
export const ENVIRONMENT: Record<string, string> = {}
