// Routes that run turns, and tell what capabilities saw.

import { json } from 'node:stream/consumers'

import { z } from 'zod'

import { AgentError, type Chunk, type Handler, type Routes, TurnRequest } from './harness/index.ts'
import { seen } from './own_capabilities.ts'

const Order = z.object({ item: z.string(), count: z.number() })

/** Run a turn as the body says; answer with its result, or its error, and what it emitted. */
const spawn: Handler = async (request, response, runtime) => {
  const given = (await json(request)) as Record<string, any>
  const chunks: Chunk[] = []
  const emit = async (chunk: Chunk) => {
    if (given.isBroken) throw new RangeError('the reader has gone')
    chunks.push(chunk)
  }
  const stop = new AbortController()
  if (given.cancelAfter) setTimeout(() => stop.abort(), given.cancelAfter)
  const { sessionId, prompt, actor = null, key = null } = given
  const output = given.isOrder ? Order : undefined
  const answer = (body: object) => void response.end(JSON.stringify({ ...body, chunks }))
  try {
    const asked = new TurnRequest({ sessionId, prompt, actor, key, output })
    const { spawn: start } = runtime // a method that a handler may take out of the runtime
    const running = start(asked, { emit, signal: stop.signal })
    if (given.isForgotten) return answer({})
    answer({ result: await running })
  } catch (error) {
    answer({ error: error instanceof AgentError ? error.type : (error as Error).name })
  }
}

export const ROUTES: Routes = {
  'POST /spawn': spawn,
  'GET /seen': (_request, response) => void response.end(JSON.stringify(seen)),
}
