// The tests run in a folder of their own, as an agent that no collection of yours concerns.

import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

const folder = mkdtempSync(join(tmpdir(), 'apart-'))
process.chdir(folder)
for (const name of ['collections', 'agents']) mkdirSync(name)
const agent = '---\nagent_id: "apart"\nmemory: {mode: "none"}\n---\n'
writeFileSync('agents/apart.agent.md', agent)
process.on('exit', () => rmSync(folder, { recursive: true, force: true }))
