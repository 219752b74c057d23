// `serve --reload`: a child process serves; after a change its turns drain, and it starts anew.

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readdirSync, statSync } from 'node:fs'
import { join, relative } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'

const SOURCES = [import.meta.dirname, 'agents', 'collections']
const FILES = ['.env', '.mcp.json']
const SERVE = [...process.execArgv, join(import.meta.dirname, 'main.ts'), 'serve']

/** Serve until a signal ends it. */
export async function serveAnew(): Promise<void> {
  const signals: string[] = []
  for (const name of ['SIGINT', 'SIGTERM']) process.on(name, () => signals.push(name))
  let code = 0
  while (signals.length === 0) {
    const before = stamps()
    const child = spawn(process.execPath, SERVE, { stdio: 'inherit' })
    const exit = once(child, 'exit')
    let changed: string | undefined
    while (signals.length === 0 && changed === undefined) {
      await sleep(500)
      const now = stamps()
      const paths = [...before.keys(), ...now.keys()].sort()
      changed = paths.find((path) => before.get(path) !== now.get(path))
    }
    if (signals.length === 0) {
      console.log(`${changed} has changed: the server restarts when its turns have ended.`)
    }
    // A terminal has sent SIGINT to the child, too.
    if (!signals.includes('SIGINT')) child.kill()
    ;[code] = await exit
  }
  process.exit(code ?? 1)
}

/** Return the files and when they changed; no hidden file and no backup. */
function stamps(): Map<string, number> {
  const [paths, times] = [[...FILES], new Map<string, number>()]
  for (const folder of SOURCES.filter((path) => existsSync(path))) {
    const names = readdirSync(folder, { recursive: true, encoding: 'utf8' })
    paths.push(
      ...names.filter((name) => !/(^|[/\\])\.|~$/.test(name)).map((it) => join(folder, it)),
    )
  }
  for (const path of paths) {
    const stat = statSync(path, { throwIfNoEntry: false })
    if (stat?.isFile()) times.set(relative('', path), stat.mtimeMs)
  }
  return times
}
