// Makes this Node look like one on Windows where it matters: its platform, and open folders.

import fs from 'node:fs'
import { syncBuiltinESMExports } from 'node:module'
import { resolve, sep } from 'node:path'

Object.defineProperty(process, 'platform', { value: 'win32' })
const { rmSync } = fs
fs.rmSync = (path, options) => {
  const isOpen = `${process.cwd()}${sep}`.startsWith(`${resolve(path)}${sep}`)
  if (isOpen) throw Object.assign(new Error(`EBUSY: rmdir '${path}'`), { code: 'EBUSY' })
  return rmSync(path, options)
}
syncBuiltinESMExports()
