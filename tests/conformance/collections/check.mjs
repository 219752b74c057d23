// Checks the projects that stdin lists, {folder, agent_id, against}, in one process of a render.
// With `variables` in it, these are the environment, and the secrets are looked up there too.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'

const load = (name) => import(pathToFileURL(join(process.cwd(), 'src/memory', name)).href)
const { checkProject } = await load('project.ts')
const { checkSecrets } = await load('secrets_check.ts')
const { readOptions } = await load('options.ts')
const found = []
for (const { folder, agent_id, against, variables } of JSON.parse(readFileSync(0, 'utf8'))) {
  const wrong = await checkProject(folder, agent_id, against)
  if (variables) {
    process.env = { PATH: process.env.PATH, ...variables, HOME: folder }
    const [options] = readOptions()
    wrong.push(...(await checkSecrets(folder, { ...options, agentId: agent_id })))
  }
  found.push(wrong)
}
process.stdout.write(JSON.stringify(found))
