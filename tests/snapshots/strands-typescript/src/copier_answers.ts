// The answers that Copier recorded, compared with the files that are there.

import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'

import { type Diagnostic, diagnostic } from './settings.ts'

const FILE = '.copier-answers.yml'
// The module that an answer brings; others bring none.
const MODULES: Record<string, Record<string, string>> = {
  session_store: { valkey: 'store/valkey', s3: 'store/s3', custom: 'store/endpoint' },
  long_term_memory: { agentcore: 'memory/agentcore' },
}

/** Return a finding for each answer that was edited by hand. */
export function checkAnswers(): Diagnostic[] {
  const [sources, findings] = [import.meta.dirname, [] as Diagnostic[]]
  const lines = existsSync(FILE) ? readFileSync(FILE, 'utf8').split(/\r?\n/) : []
  for (const [index, line] of lines.entries()) {
    const [question = '', answer = ''] = line.split(': ')
    const modules = MODULES[question] ?? {}
    const isThere = (it: string) => existsSync(join(sources, `${modules[it]}.ts`))
    const there = Object.keys(modules).filter(isThere)
    if (!there.includes(answer) && (there.length > 0 || answer in modules)) {
      const command = `uvx copier update --defaults -r :current: -d ${question}=${answer}`
      const message = `This line was edited: restore it, commit, and type \`${command}\`.`
      findings.push(diagnostic('SET-ANSWERS', message, 'error', FILE, index + 1))
    }
  }
  return findings
}
