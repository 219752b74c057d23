// Tries each regular expression of a render's collections/ and memory/ with hostile texts.
//
// The texts are pairs: a short one and a long one. A pattern is slow if it takes more CPU time for
// the long text than `ratio` times the time for the short text plus `floor` seconds. Prints the
// number of patterns, and the slow ones: {"tried": n, "slow": [...]}.
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { createContext, Script } from 'node:vm'

const { folders, texts, ratio, floor } = JSON.parse(readFileSync(0, 'utf8'))
const HANG_MS = 30_000
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

/** Return the CPU time of a pattern, in seconds; Infinity if it hangs. */
function spent(pattern, text) {
  Object.assign(context, { text, pattern })
  const start = process.cpuUsage()
  try {
    attempt.runInContext(context, { timeout: HANG_MS })
  } catch (error) {
    if (error.code !== 'ERR_SCRIPT_EXECUTION_TIMEOUT') throw error
    return Infinity
  }
  const { user, system } = process.cpuUsage(start)
  return (user + system) / 1e6
}

for (const [where, pattern] of built) {
  for (const [short, long] of texts) {
    const limit = ratio * spent(pattern, short) + floor
    if (limit === Infinity || spent(pattern, long) > limit) {
      slow.push(`${where}: ${JSON.stringify(long.slice(0, 20))}…`)
      break
    }
  }
}
process.stdout.write(JSON.stringify({ tried: built.size, slow }))
