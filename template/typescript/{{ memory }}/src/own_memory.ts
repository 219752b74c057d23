// Long-term memory as you want it: what is shown, recorded and added. Updates leave it alone.

import { MemoryPolicy } from './harness/memory/index.ts'

/** Override fields and methods of `MemoryPolicy`; docs/memory.md has an example. */
export class OwnMemory extends MemoryPolicy {}
