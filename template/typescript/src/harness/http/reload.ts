// `serve --reload`: a child process serves; after a change it drains and restarts.

import { type ChildProcess, spawn, type StdioOptions } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, fstatSync, ftruncateSync, mkdtempSync, openSync, readdirSync } from 'node:fs'
import { readSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, relative } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'

import { InProcess, type SessionStore } from '../sessions/session_store.ts'

const FILES = ['.env', '.mcp.json']
// The variable with the file descriptor that passes sessions to the next child. The file has no
// name, so it disappears with these processes.
const SESSIONS_FD = 'RELOAD_FD'
// The variable with the process id of `serve --reload`.
const PARENT_PID = 'RELOAD_PID'

/** Serve until a signal arrives; restart after a change in `folder`. */
export async function serveWithReload(folder: string): Promise<void> {
  const program = [...process.execArgv, process.argv[1]!, 'serve']
  const signals: string[] = []
  let child: ChildProcess | undefined
  for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
    process.on(name, () => signals.push(name) > 1 && child?.kill(name))
  }
  const isKilled = process.platform === 'win32' // the child cannot save its sessions
  const hidden = mkdtempSync(join(tmpdir(), 'sessions-'))
  const sessions = isKilled ? 'ignore' : openSync(join(hidden, 'sessions.json'), 'ax+', 0o600)
  rmSync(hidden, { recursive: true })
  const own = isKilled ? {} : { [SESSIONS_FD]: '3', [PARENT_PID]: String(process.pid) }
  const env = { ...process.env, ...own }
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
      console.log(`${changed} changed: the server restarts after its running turns.`)
    }
    // Ctrl-C in a terminal reaches the child too; other callers must signal twice.
    if (!signals.includes('SIGINT')) child.kill()
    ;[code] = await exit
  }
  process.exit(code ?? 1)
}

/** Return a function that reports whether the parent, `serve --reload`, has exited. */
export function watchParent(): () => boolean {
  const parent = Number(process.env[PARENT_PID])
  delete process.env[PARENT_PID]
  return () => parent > 0 && process.ppid !== parent
}

/** Restore the previous child's sessions; return a function that passes them on. */
export function takeOver(store: SessionStore): () => void {
  const file = Number(process.env[SESSIONS_FD])
  delete process.env[SESSIONS_FD]
  if (!file || !(store instanceof InProcess)) return () => {}
  const text = Buffer.alloc(fstatSync(file).size)
  readSync(file, text, { position: 0 })
  ftruncateSync(file) // a crashed child must not pass on old sessions
  store.entries.load(JSON.parse(text.toString() || '[]'))
  return () => writeFileSync(file, JSON.stringify(store.entries.dump()))
}

/** Return watched files and their times, without hidden files and backups. */
function modificationTimes(sources: string): Map<string, number> {
  const paths = [...FILES]
  const times = new Map<string, number>()
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
