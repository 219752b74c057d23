// The support agent: its prompt, and a tool that searches the help pages.

import { tool } from 'ai'
import { z } from 'zod'

import { findArticles } from './help.ts'

export const SYSTEM_PROMPT = `\
You are the support of a shop for tea and pots. Answer in one or two friendly sentences.
Search the help pages before you answer, and name the path of the page that you used.
If no page answers the question, say so, and name the address help@shop.example.
You cannot see orders or accounts: never ask for a password or for payment data.`

const searchHelp = tool({
  description: 'Search the help pages of the shop by the words of a question.',
  inputSchema: z.object({ question: z.string() }),
  execute: ({ question }) => {
    const found = findArticles(question).map(({ path, text }) => `${path}: ${text}`)
    return found.join('\n') || 'No help page answers this.'
  },
})

export const TOOLS = { search_help: searchHelp }
