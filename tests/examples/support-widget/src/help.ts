// The help pages of the shop, found by the words of a question. Put the search of yours here.

export type Article = { title: string; path: string; text: string }

const ARTICLES: Article[] = [
  {
    title: 'Delivery',
    path: '/help/delivery',
    text: 'A parcel arrives two to three days after the order. Delivery is free from 50 EUR on.',
  },
  {
    title: 'Returns',
    path: '/help/returns',
    text: 'Return unused items within 30 days; the label is in the parcel. Refunds take five days.',
  },
  {
    title: 'Broken items',
    path: '/help/broken-items',
    text: 'Send a photo of a broken item within 14 days, and a new one is sent without a return.',
  },
]

/** Return the articles that have words of a question, the best first. */
export function findArticles(question: string, articles = ARTICLES): Article[] {
  const wanted = wordsOf(question)
  return articles
    .map((article) => {
      const words = wordsOf(`${article.title} ${article.text}`)
      return { article, score: [...wanted].filter((word) => words.has(word)).length }
    })
    .filter(({ score }) => score > 0)
    .toSorted((one, other) => other.score - one.score)
    .map(({ article }) => article)
}

/** Return the words of a text that are long enough to mean something, without the s of a plural. */
function wordsOf(text: string): Set<string> {
  const words = text.toLowerCase().match(/\p{L}{4,}/gu) ?? []
  return new Set(words.map((word) => word.replace(/s$/, '')))
}
