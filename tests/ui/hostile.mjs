// Shows repeats of what Markdown has a meaning for, without a browser: `node hostile.mjs MODULE`.
// Prints the slowest in milliseconds, and what it was.
const node = () => ({ children: [], append(...more) { this.children.push(...more) } })
globalThis.document = { createElement: node }
const { showMarkdown } = await import(process.argv[2])

const PARTS = ['`', '``', '*', '_', '**', '__', '~', '[', ']', '![', '](', '|', '\\', '<', '>', '#', '\n']
PARTS.push('- ', '1. ', '> ', ' ', '\t- ', 'a', 'http://', '&', '$', '"', '```\n', '|-\n', '"', 'a_')
let [slowest, what] = [0, '']
for (const one of PARTS) {
  for (const other of ['', 'a', ' ', '\n', '`', '*', '[', '|']) {
    for (const start of ['', 'a ']) {
      const text = start + (one + other).repeat(2000 / (one + other).length)
      const began = performance.now()
      showMarkdown(node(), text)
      const took = performance.now() - began
      if (took > slowest) [slowest, what] = [took, start + one + other]
    }
  }
}
console.log(Math.round(slowest), JSON.stringify(what))
