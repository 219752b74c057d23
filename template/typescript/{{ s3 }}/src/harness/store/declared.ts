// Exports this project's session store as DeclaredStore.

export { S3Store as DeclaredStore } from './s3.ts'
