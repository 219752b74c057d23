// POST /questions: a webhook that replies at once; the answer is sent to ANSWERS_URL later.

import { z } from 'zod'

import { AgentError, Capability, type Handler, TurnRequest } from './harness/index.ts'
import type { Routes, TurnResult } from './harness/index.ts'
import type { Settings } from './own_settings.ts'

const TIMEOUT_MILLISECONDS = 10_000
const Question = z.object({ id: z.string().regex(/^[\w-]{1,100}$/), question: z.string() })

export class Questions extends Capability<Settings> {
  readonly #answers = new Set<Promise<void>>()

  override routes(): Routes {
    return this.settings.answersUrl ? { 'POST /questions': this.#ask } : {}
  }

  /** Send the answers that remain: the process ends after this. */
  override async close(): Promise<void> {
    await Promise.all(this.#answers)
  }

  readonly #ask: Handler = async (_request, response, runtime, call) => {
    const { success, data } = Question.safeParse(await call.json())
    if (!success) throw new AgentError('invalid_request', 'Send a question with its id.')
    const { id, question: prompt } = data
    // With its id as the key, a question that is sent twice is answered by the same turn.
    const request = new TurnRequest({
      sessionId: `question-${id}`,
      prompt,
      actor: call.actor,
      key: id,
    })
    const answer = this.#send(id, runtime.spawn(request))
    this.#answers.add(answer)
    void answer.finally(() => this.#answers.delete(answer))
    response.writeHead(202, { 'Content-Type': 'application/json' }).end(JSON.stringify({ id }))
  }

  async #send(id: string, turn: Promise<TurnResult>): Promise<void> {
    try {
      const answer = await turn.then(
        ({ reply }) => ({ id, reply }),
        (error: unknown) => ({
          id,
          error: error instanceof AgentError ? error.type : 'internal_error',
        }),
      )
      const signal = AbortSignal.timeout(TIMEOUT_MILLISECONDS)
      const headers = { 'Content-Type': 'application/json' }
      const body = JSON.stringify(answer)
      const { ok, status } = await fetch(this.settings.answersUrl, {
        method: 'POST',
        headers,
        body,
        signal,
      })
      if (!ok) throw new Error(`HTTP ${status}`)
    } catch (error) {
      console.error(`the answer to ${id} was not sent: ${(error as Error).message}`)
    }
  }
}
