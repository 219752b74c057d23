// Your decisions about long-term memory. Template updates do not change this file.

import { MemoryPolicy } from './harness/memory/index.ts'

/** Override fields and methods of `MemoryPolicy`; docs/memory.md has an example. */
export class OwnMemory extends MemoryPolicy {}
