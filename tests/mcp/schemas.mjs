// Repairs each vector of schemas.json with the modules of a render, and prints what it makes of it.

import { readFileSync } from 'node:fs'

const [, , root, file] = process.argv
const { RepairedTool, NotRepairableError } = await import(`${root}/src/harness/mcp_servers/schemas.ts`)
const { problemsOf, refusedTool } = await import(`${root}/src/harness/tool_schemas.ts`)

function repaired({ description, schema, arguments: args }) {
  try {
    const repaired = new RepairedTool(description, schema)
    const problems = problemsOf('tool', repaired.description, repaired.schema)
    const restored = args && repaired.restore(args)
    return { description: repaired.description, schema: repaired.schema, problems, restored }
  } catch (error) {
    if (!(error instanceof NotRepairableError)) throw error
    return { refused: error.message }
  }
}

const { vectors, refusals } = JSON.parse(readFileSync(file, 'utf8'))
const names = ['one', 'two', 'hubspot-search']
const refused = refusals.map((text) => refusedTool(new Error('HTTP', { cause: Error(text) }), names))
console.log(JSON.stringify({ vectors: vectors.map(repaired), refused }))
