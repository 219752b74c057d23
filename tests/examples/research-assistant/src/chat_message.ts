// The messages of a page with useChat: what this agent adds to them, and how to read it.

import type { UIMessage } from 'ai'

import { Article } from './article.ts'

/** For useChat<ResearchMessage>(): the metadata, and the part `data-progress`. */
export type ResearchMessage = UIMessage<{ turn?: number }, { progress: { title: string } }>

/** Return the articles that the tool look_up found for a message. */
export function articlesIn({ parts }: ResearchMessage): Article[] {
  return parts.flatMap((part) => {
    if (part.type !== 'dynamic-tool' || part.toolName !== 'look_up') return []
    return part.state === 'output-available' ? [Article.parse(part.output)] : []
  })
}
