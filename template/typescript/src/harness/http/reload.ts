// `serve --reload`: a child process serves; after a change its turns drain, and it restarts.

import { type ChildProcess, spawn, type StdioOptions } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, fstatSync, ftruncateSync, mkdtempSync, openSync, readdirSync } from 'node:fs'
import { readSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, relative } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'

import { InProcess, type SessionStore } from '../sessions/session_store.ts'

const FILES = ['.env', '.mcp.json']
// Names the open file in which a child leaves its sessions to the next one; other processes have
// neither. The file has no name, so nothing of it outlives them.
const HANDED_OVER = 'RELOAD_FD'

/** Serve until a signal ends it; restart after a change of the sources in `folder`. */
export async function serveWithReload(folder: string): Promise<void> {
  const program = [...process.execArgv, process.argv[1]!, 'serve']
  const signals: string[] = []
  let child: ChildProcess | undefined
  for (const name of ['SIGINT', 'SIGTERM'] as const) {
    process.on(name, () => signals.push(name) > 1 && child?.kill(name))
  }
  const isKilled = process.platform === 'win32' // a child, which has no time to leave anything
  const hidden = mkdtempSync(join(tmpdir(), 'sessions-'))
  const sessions = isKilled ? 'ignore' : openSync(join(hidden, 'sessions.json'), 'ax+', 0o600)
  rmSync(hidden, { recursive: true })
  const env = { ...process.env, [HANDED_OVER]: isKilled ? '' : '3' }
  let code = 0
  while (signals.length === 0) {
    const before = modificationTimes(folder)
    const stdio: StdioOptions = ['inherit', 'inherit', 'inherit', sessions]
    child = spawn(process.execPath, program, { stdio, env })
    const exit = once(child, 'exit')
    let changed: string | undefined
    while (signals.length === 0 && changed === undefined) {
      await sleep(500)
      const now = modificationTimes(folder)
      const paths = [...before.keys(), ...now.keys()].sort()
      changed = paths.find((path) => before.get(path) !== now.get(path))
    }
    if (signals.length === 0) {
      console.log(`${changed} has changed: the server restarts when its turns have ended.`)
    }
    // A terminal has sent SIGINT to the child, too; who has not sends another signal.
    if (!signals.includes('SIGINT')) child.kill()
    ;[code] = await exit
  }
  process.exit(code ?? 1)
}

/** Continue the sessions of the previous child; return what leaves them to the next one. */
export function takeOver(store: SessionStore): () => void {
  const file = Number(process.env[HANDED_OVER])
  delete process.env[HANDED_OVER]
  if (!file || !(store instanceof InProcess)) return () => {}
  const text = Buffer.alloc(fstatSync(file).size)
  readSync(file, text, { position: 0 })
  ftruncateSync(file) // a child that crashes leaves nothing, and so nothing old
  store.entries.load(JSON.parse(text.toString() || '[]'))
  return () => writeFileSync(file, JSON.stringify(store.entries.dump()))
}

/** Return the files and when they changed; no hidden file and no backup. */
function modificationTimes(sources: string): Map<string, number> {
  const [paths, times] = [[...FILES], new Map<string, number>()]
  for (const folder of [sources, 'agents', 'collections'].filter((path) => existsSync(path))) {
    const names = readdirSync(folder, { recursive: true, encoding: 'utf8' })
    const shown = names.filter((name) => !/(^|[/\\])\.|~$/.test(name))
    paths.push(...shown.map((name) => join(folder, name)))
  }
  for (const path of paths) {
    const stat = statSync(path, { throwIfNoEntry: false })
    if (stat?.isFile()) times.set(relative('', path), stat.mtimeMs)
  }
  return times
}
