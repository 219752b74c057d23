// HTTP to the provider of the model, with a limit for what it sends.

import { AgentError, RUNNING } from '../contract.ts'
import type { CoreSettings } from '../settings.ts'

/**
 * Return a `fetch` that ends a call whose answer is too large.
 *
 * A byte of a reply takes up to six in JSON, and a short chunk comes with much around it.
 */
export function boundedFetch({ maxReplyBytes }: CoreSettings): typeof fetch {
  const [longest, most] = [6 * maxReplyBytes + 65_536, 64 * maxReplyBytes + 65_536]
  return async (input, init) => {
    const response = await fetch(input, init)
    const retryAfter = response.headers.get('retry-after') ?? ''
    RUNNING.getStore()?.noteAnswer(response.status, retryAfter)
    let [line, total] = [0, 0]
    const limit = new TransformStream<Uint8Array, Uint8Array>({
      transform(chunk, controller) {
        const end = chunk.lastIndexOf(10)
        line = end < 0 ? line + chunk.length : chunk.length - end - 1
        total += chunk.length
        if (line > longest || total > most) {
          throw new AgentError('reply_incomplete', '', 'MAX_REPLY_BYTES')
        }
        controller.enqueue(chunk)
      },
    })
    return new Response(response.body?.pipeThrough(limit), response)
  }
}
