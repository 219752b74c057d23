// What every call of a store needs: a limit of time, and bytes as text.

import { Unavailable } from './backends.ts'

/** Do the work; when it takes longer, abort its signal and throw Unavailable at once. */
export async function bounded<T>(
  seconds: number,
  work: (stop: AbortSignal) => Promise<T>,
): Promise<T> {
  const own = new AbortController()
  const late = Promise.withResolvers<never>()
  const timer = setTimeout(() => {
    late.reject(new Unavailable(`no answer within ${seconds} s`))
    own.abort()
  }, seconds * 1000)
  try {
    return await Promise.race([work(own.signal), late.promise])
  } finally {
    clearTimeout(timer)
    own.abort() // ends what has not come to its end, such as a body that nobody reads
  }
}

/** The bytes as text; the empty text, which no snapshot is, when they are no UTF-8. */
export function decode(bytes: Uint8Array): string {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes)
  } catch {
    return ''
  }
}
