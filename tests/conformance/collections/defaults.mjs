// Loads the projects that stdin lists, each with a folder: the values of their fields.
import { globSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'

const FOLDER = join(process.cwd(), 'src/harness/collections')
const load = (name) => import(pathToFileURL(join(FOLDER, `${name}.ts`)).href)
const { loadProject } = await load('check')
const { Agent, Grants } = await load('models')
const { readDocument } = await load('reader')

function loaded({ folder }) {
  const { collections, reads, writes } = loadProject(folder, null)
  const [collection] = collections.values()
  const found = { collection, reads, writes }
  for (const [kind, model] of Object.entries({ agent: Agent, iam: Grants })) {
    const [path] = globSync(`*/*.${kind}.md`, { cwd: folder })
    found[kind] = model.parse(readDocument(join(folder, path), path).data)
  }
  return found
}

const found = JSON.parse(readFileSync(0, 'utf8')).map(loaded)
process.stdout.write(JSON.stringify(found))
