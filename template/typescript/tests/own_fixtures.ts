// Your fixtures, and the environment of all tests. Updates keep your edits.

/** Variables of all tests, such as `{ ORDERS_URL: 'http://orders.test' }`. */
export const ENVIRONMENT: Record<string, string> = {}
