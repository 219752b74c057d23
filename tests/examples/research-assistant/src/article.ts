// An article, as the model and a page get it. A page can import this file: it needs no server.

import { z } from 'zod'

export const Article = z.object({ title: z.string(), extract: z.string(), url: z.url() })
export type Article = z.infer<typeof Article>
