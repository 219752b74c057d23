// Checks the projects that stdin lists, {folder, agent_id, against}, in one process of a render.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'

const module = pathToFileURL(join(process.cwd(), 'src/memory/project.ts')).href
const { checkProject } = await import(module)
const found = []
for (const { folder, agent_id, against } of JSON.parse(readFileSync(0, 'utf8'))) {
  found.push(await checkProject(folder, agent_id, against))
}
process.stdout.write(JSON.stringify(found))
