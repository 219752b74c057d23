// The tests run in a folder of their own, as an agent that no collection of yours concerns.

import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

const folder = mkdtempSync(join(tmpdir(), 'apart-'))
process.chdir(folder)
for (const name of ['collections', 'agents']) mkdirSync(name)
writeFileSync('agents/apart.agent.md', '---\nagent_id: "apart"\nmemory: {mode: "none"}\n---\n')
process.on('exit', () => process.chdir(tmpdir())) // Windows deletes no folder that is in use
process.on('exit', () => rmSync(folder, { recursive: true, force: true }))
