// Checks the projects that stdin lists, in one process of a render: {"found", "seconds"} for each.
//
// Each is {folder, agent_id, variables}. Without variables nothing is said about them. The seconds
// are CPU time.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'

const module = pathToFileURL(join(process.cwd(), 'src/harness/collections/check.ts')).href
const { checkProject } = await import(module)
const OF_VARIABLES = ['AML-W240', 'AML-W242']

function check({ folder, agent_id, variables }) {
  process.env = { ...variables, HOME: folder }
  const start = process.cpuUsage()
  const found = checkProject(folder, agent_id ?? null)
  const { user, system } = process.cpuUsage(start)
  return {
    found: found.filter(({ id }) => variables || !OF_VARIABLES.includes(id)),
    seconds: (user + system) / 1e6,
  }
}

const found = JSON.parse(readFileSync(0, 'utf8')).map(check)
process.stdout.write(JSON.stringify(found))
