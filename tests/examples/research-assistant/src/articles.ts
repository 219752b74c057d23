// Looks up articles of an encyclopedia, and shows them as sources beside the reply.

import { trace } from '@opentelemetry/api'
import { tool } from 'ai'
import { LRUCache } from 'lru-cache'
import { z } from 'zod'

import type { Article } from './article.ts'
import { Capability, currentTurn, Data, type NamedTool, Source } from './harness/index.ts'
import type { Settings } from './own_settings.ts'

const TIMEOUT_MILLISECONDS = 10_000

// The part of an answer of ARTICLES_URL that is used.
const Answer = z.object({
  title: z.string(),
  extract: z.string(),
  content_urls: z.object({ desktop: z.object({ page: z.url() }) }),
})

export class Articles extends Capability<Settings> {
  // Calls for the same article share a request, also while it runs.
  readonly #articles = new LRUCache<string, Article>({
    max: 500,
    ttl: 60 * 60 * 1000,
    fetchMethod: (title) => this.#fetch(title),
  })

  readonly #lookUp = tool({
    description: 'Look up an article of the encyclopedia by its title.',
    inputSchema: z.object({ title: z.string().min(1).max(200) }),
    execute: async ({ title }) => {
      const turn = currentTurn()
      await turn.emit(new Data('progress', { title }))
      const article = await this.#articles.forceFetch(title)
      await turn.emit(new Source(article.url, article.title))
      return article
    },
  })

  override tools(): NamedTool[] {
    return [['look_up', this.#lookUp]]
  }

  /** Fetch an article in a span of its own, below that of the tool. */
  async #fetch(title: string): Promise<Article> {
    return trace.getTracer('articles').startActiveSpan('fetch article', async (span) => {
      try {
        const url = `${this.settings.articlesUrl}/${encodeURIComponent(title)}`
        const response = await fetch(url, { signal: AbortSignal.timeout(TIMEOUT_MILLISECONDS) })
        span.setAttribute('http.response.status_code', response.status)
        if (!response.ok) throw new Error(`The encyclopedia answered ${response.status}.`)
        const { content_urls: urls, ...article } = Answer.parse(await response.json())
        return { ...article, url: urls.desktop.page }
      } finally {
        span.end()
      }
    })
  }
}
