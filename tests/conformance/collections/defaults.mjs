// Loads the projects that stdin lists, as folders, in a render: what its models make of them.
import { globSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'

const load = (name) => import(pathToFileURL(join(process.cwd(), `src/memory/${name}.ts`)).href)
const { read } = await load('frontmatter')
const models = await load('models')
const { loadProject } = await load('project')

function loaded(folder) {
  const { collections, reads, writes } = loadProject(folder)
  const [collection] = collections.values()
  const found = { collection, reads, writes }
  for (const kind of ['agent', 'iam']) {
    const [path] = globSync(`*/*.${kind}.md`, { cwd: folder })
    found[kind] = models[kind].parse(read(join(folder, path), path).data)
  }
  return found
}

const found = JSON.parse(readFileSync(0, 'utf8')).map(loaded)
process.stdout.write(JSON.stringify(found))
