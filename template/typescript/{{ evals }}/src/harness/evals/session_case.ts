// Converts a stored session to a case, and marks text that looks personal.

import { stringify } from 'yaml'

import { turnsOf } from './adapter.ts'

// E-mail addresses; phone, card and account numbers.
const PERSONAL = /[\w.+-]+@[\w-]+\.[\w.]+|\+?\d[\d ()/.-]{6,}\d|[A-Z]{2}\d{2}[A-Z0-9]{10,}/g

/** Return a case as YAML; its stubs and `offline` lines repeat the session's answers. */
export function caseOf(session: string, messages: readonly unknown[]): string {
  const tools: Record<string, object[]> = {}
  const turns = turnsOf(messages).map(({ prompt, calls, reply }) => {
    for (const { tool, input, answer, failed } of calls) {
      const stubs = (tools[tool] ??= [])
      stubs.push({ input, [failed ? 'error' : 'answer']: answer })
    }
    return { prompt, offline: [...calls.map(({ tool, input }) => ({ tool, input })), reply] }
  })
  const words = `session-${session.slice(0, 40).toLowerCase()}`.replace(/[^a-z0-9]+/g, '-')
  const name = words.replace(/-$/, '')
  const declaredTools = Object.keys(tools).length > 0 ? { tools: markPersonal(tools) } : {}
  const cases = { cases: [{ name, ...declaredTools, turns: markPersonal(turns) }] }
  return `# From session ${session}. <<...>> marks text that looks personal.
# Replace all personal data. Then add your expectations: see \`expect\` in schema.json.
${stringify(cases, { aliasDuplicateObjects: false })}`
}

function markPersonal(value: unknown): unknown {
  if (typeof value === 'string') return value.replace(PERSONAL, '<<$&>>')
  if (Array.isArray(value)) return value.map(markPersonal)
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, markPersonal(item)]))
}
