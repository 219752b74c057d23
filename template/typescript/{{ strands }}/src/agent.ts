// Your agent: system prompt and tools. Edit this file.

import { tool } from '@strands-agents/sdk'
import { z } from 'zod'

export const SYSTEM_PROMPT = 'You are a helpful assistant. Answer briefly and in plain words.'

const wordCount = tool({
  name: 'word_count',
  description: 'Count the words of a text.',
  inputSchema: z.object({ text: z.string() }),
  callback: ({ text }) => text.match(/\S+/g)?.length ?? 0,
})

export const TOOLS = [wordCount]
