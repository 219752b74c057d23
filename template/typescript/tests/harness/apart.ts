// Runs the tests in an empty folder, without your collections.

import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

const folder = mkdtempSync(join(tmpdir(), 'apart-'))
process.chdir(folder)
for (const name of ['collections', 'agents']) mkdirSync(name)
writeFileSync('agents/apart.agent.md', '---\nagent_id: "apart"\nmemory: {mode: "none"}\n---\n')
process.on('exit', () => process.chdir(tmpdir())) // Windows cannot delete a folder in use
process.on('exit', () => rmSync(folder, { recursive: true, force: true }))
