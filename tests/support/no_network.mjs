// A module (`node --import`) that fails whatever reaches for another machine.

import { Socket } from 'node:net'

const connect = Socket.prototype.connect
const HERE = [undefined, 'localhost', '127.0.0.1', '::1']

Socket.prototype.connect = function (...args) {
  const [options] = Array.isArray(args[0]) ? args[0] : args
  const host = options?.host ?? (typeof args[1] === 'string' ? args[1] : undefined)
  if (!options?.path && !HERE.includes(host)) {
    throw new Error(`a socket reaches for ${host}, but these tests run offline`)
  }
  return connect.apply(this, args)
}
