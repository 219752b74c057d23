// Limits the size of HTTP responses of the model provider.

import { AgentError, RUNNING } from '../contract.ts'
import { diagnostic, type Finding } from '../findings.ts'
import { type CoreSettings, isPlainHttp } from '../settings.ts'

/**
 * Return a `fetch` that aborts a call if its response is too large.
 *
 * A byte of a reply takes up to six bytes in JSON, and short chunks have a high overhead.
 */
export function boundedFetch({ maxReplyBytes }: CoreSettings): typeof fetch {
  const maxLine = 6 * maxReplyBytes + 65_536
  const maxTotal = 64 * maxReplyBytes + 65_536
  return async (input, init) => {
    const response = await fetch(input, init)
    const retryAfter = response.headers.get('retry-after') ?? ''
    RUNNING.getStore()?.noteAnswer(response.status, retryAfter)
    let line = 0
    let total = 0
    const limit = new TransformStream<Uint8Array, Uint8Array>({
      transform(chunk, controller) {
        const end = chunk.lastIndexOf(10)
        line = end < 0 ? line + chunk.length : chunk.length - end - 1
        total += chunk.length
        if (line > maxLine || total > maxTotal) {
          throw new AgentError('reply_incomplete', '', 'MAX_REPLY_BYTES')
        }
        controller.enqueue(chunk)
      },
    })
    return new Response(response.body?.pipeThrough(limit), response)
  }
}

/**
 * Return findings about an invalid address, and about a key that would travel unencrypted.
 *
 * @public
 */
export function checkAddress(
  { variable, url, example }: { variable: string; url: string; example: string },
  key: string,
): Finding[] {
  if (!/^https?:\/\//i.test(url)) {
    const hint = `${variable} must be an http address, for example ${example}.`
    return [diagnostic(`SET-${variable}`, hint)]
  }
  if (!key || !isPlainHttp(url)) return []
  const hint = `${key} travels over plain http to another host: use https.`
  return [diagnostic(`SET-${variable}`, hint, 'warning')]
}
