// The session store: Valkey or Redis.

export { ValkeyStore as DeclaredStore } from './valkey.ts'
