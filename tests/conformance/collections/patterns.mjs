// Tries each regular expression of a render's collections/ and memory/ with hostile texts.
//
// Prints how many there are, and those that took longer than is linear: {"tried": n, "slow": [...]}.
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { createContext, Script } from 'node:vm'

const { folders, texts, seconds } = JSON.parse(readFileSync(0, 'utf8'))
const LITERAL = /(?<=[=(,:?!&|[\s])\/(?![/*])(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n[])+\/[gimsuy]*/g

// What is built from parts when a module is loaded, such as the forms of fields.
const built = new Map()
const Original = RegExp
globalThis.RegExp = new Proxy(Original, {
  construct(target, [source, flags]) {
    built.set(String(source), new Original(source, flags))
    return new target(source, flags)
  },
})
for (const folder of folders.map((name) => join('src', 'harness', name))) {
  for (const name of readdirSync(folder).filter((it) => it.endsWith('.ts'))) {
    const path = join(folder, name)
    await import(pathToFileURL(path).href)
    for (const line of readFileSync(path, 'utf8').split('\n')) {
      if (/^\s*(\/\/|\*|\/\*)/.test(line)) continue
      for (const [literal] of line.matchAll(LITERAL)) {
        const end = literal.lastIndexOf('/')
        try {
          built.set(`${path} ${literal}`, new Original(literal.slice(1, end), literal.slice(end + 1)))
        } catch {
          // Two slashes in a text: what is built from that is seen above.
        }
      }
    }
  }
}
globalThis.RegExp = Original

const slow = []
const context = createContext({})
const attempt = new Script('text.replace(pattern, "")')
for (const [where, pattern] of built) {
  for (const text of texts) {
    try {
      Object.assign(context, { text, pattern })
      attempt.runInContext(context, { timeout: seconds * 1000 })
    } catch (error) {
      if (error.code !== 'ERR_SCRIPT_EXECUTION_TIMEOUT') throw error
      slow.push(`${where}: ${JSON.stringify(text.slice(0, 20))}…`)
      break
    }
  }
}
process.stdout.write(JSON.stringify({ tried: built.size, slow }))
