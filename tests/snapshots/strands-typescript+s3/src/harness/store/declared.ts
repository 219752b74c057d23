// The session store: Amazon S3.

export { S3Store as DeclaredStore } from './s3.ts'
