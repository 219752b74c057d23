// Exports this project's session store as DeclaredStore.

export { ValkeyStore as DeclaredStore } from './valkey.ts'
