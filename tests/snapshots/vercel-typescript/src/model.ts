// Which model answers: MODEL over Chat Completions, or the offline model while MODEL is unset.

import { createOpenAICompatible } from '@ai-sdk/openai-compatible'
import { type LanguageModel, wrapLanguageModel } from 'ai'

import { chatFetch } from './harness/models/chat_stream.ts'
import { diagnostic, type Finding } from './harness/findings.ts'
import { OfflineModel } from './harness/echo_model.ts'
import { keepingReasoning } from './harness/models/reasoning.ts'
import { type CoreSettings, isPlainHttp } from './harness/settings.ts'

// What to look at when the provider refuses a call, and when it is not reached.
export const [CREDENTIALS, ADDRESS] = ['OPENAI_API_KEY', 'OPENAI_BASE_URL']

/** The model of this process. */
export function buildModel(settings: CoreSettings): LanguageModel {
  if (settings.model === 'offline') return new OfflineModel()
  const key = process.env.OPENAI_API_KEY // a server of your own may want none
  const openai = createOpenAICompatible({
    name: 'openai',
    baseURL: modelEndpoint(settings),
    fetch: chatFetch(settings),
    includeUsage: true,
    supportsStructuredOutputs: true,
    ...(key && { apiKey: key }),
  })
  return wrapLanguageModel({ model: openai(settings.model), middleware: keepingReasoning })
}

/** Return findings about missing or invalid model settings. */
export function checkModel(settings: CoreSettings): Finding[] {
  const { OPENAI_API_KEY: key, OPENAI_BASE_URL: url } = process.env
  if (!/^https?:\/\//i.test(modelEndpoint(settings))) {
    const hint = 'OPENAI_BASE_URL must be an http address, as in http://localhost:11434/v1.'
    return [diagnostic('SET-OPENAI_BASE_URL', hint)]
  }
  if (key && isPlainHttp(modelEndpoint(settings))) {
    const hint = 'OPENAI_API_KEY travels over plain http to another host: use https.'
    return [diagnostic('SET-OPENAI_BASE_URL', hint, 'warning')]
  }
  if (key || url) return []
  const hint = 'Set OPENAI_API_KEY, or OPENAI_BASE_URL for a server of your own: MODEL needs it.'
  return [diagnostic('SET-OPENAI_API_KEY', hint)]
}

/** Where the model is reached. */
export function modelEndpoint(_settings: CoreSettings): string {
  return process.env.OPENAI_BASE_URL || 'https://api.openai.com/v1'
}
