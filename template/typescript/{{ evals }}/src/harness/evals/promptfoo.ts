// Converts cases for promptfoo, which has a viewer and a red team.

import { randomUUID } from 'node:crypto'

import type { Case } from './cases.ts'

const HEAD = {
  description: 'The cases in evals/, sent to POST /invocations of a running server.',
  prompts: ['{{prompt}}'],
  providers: [
    {
      id: 'http',
      config: {
        url: 'http://127.0.0.1:8080/invocations',
        method: 'POST',
        headers: {
          Accept: 'application/json',
          'Content-Type': 'application/json',
          'X-Amzn-Bedrock-AgentCore-Runtime-Session-Id': '{{conversation}}',
        },
        body: { prompt: '{{prompt}}' },
        transformResponse: 'json.reply',
      },
    },
  ],
}

/** Return the configuration; each turn is a test in the session of its case. */
export function config(cases: readonly Case[]): object {
  const run = randomUUID().slice(0, 8) // earlier files used other sessions
  const tests = cases.flatMap(({ name, data }) => {
    return (data.turns ?? []).map(({ prompt, expect = {} }, index) => {
      const { contains = [], lacks = [], matches, schema } = expect.reply ?? {}
      const checks: object[] = [
        ...contains.map((value) => ({ type: 'contains', value })),
        ...lacks.map((value) => ({ type: 'not-contains', value })),
      ]
      if (matches) checks.push({ type: 'regex', value: matches })
      if (schema) checks.push({ type: 'is-json', value: schema })
      if (expect.judge) checks.push({ type: 'llm-rubric', value: expect.judge })
      const vars = { prompt, conversation: `${name}-${run}` }
      return { description: `${name}, turn ${index + 1}`, vars, assert: checks }
    })
  })
  return { ...HEAD, tests }
}
