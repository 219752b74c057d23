// Models over the Chat Completions API of OpenAI, Ollama, vLLM and others.

import { createOpenAICompatible } from '@ai-sdk/openai-compatible'
import { defaultSettingsMiddleware, type LanguageModel, wrapLanguageModel } from 'ai'

import { withTexts } from '../file_parts.ts'
import { diagnostic, type Finding } from '../findings.ts'
import type { CoreSettings } from '../settings.ts'
import { chatFetch } from './chat_stream.ts'
import { checkAddress } from './provider.ts'
import { keepingReasoning } from './reasoning.ts'

/** Options of model calls. */
export type VendorOptions = Parameters<typeof defaultSettingsMiddleware>[0]['settings']

const EXAMPLE_ADDRESS = 'http://localhost:11434/v1'

/** Return the model for these settings. */
export function vendorModel(settings: CoreSettings, options: VendorOptions): LanguageModel {
  const key = process.env.OPENAI_API_KEY // your own server may need no key
  const openai = createOpenAICompatible({
    name: 'openai',
    baseURL: vendorEndpoint(settings),
    fetch: chatFetch(settings),
    includeUsage: true,
    supportsStructuredOutputs: true,
    ...(key && { apiKey: key }),
  })
  const middleware = [defaultSettingsMiddleware({ settings: options }), withTexts, keepingReasoning]
  return wrapLanguageModel({ model: openai(settings.model), middleware })
}

/** Return findings about missing or invalid model settings. */
export function vendorFindings(settings: CoreSettings): Finding[] {
  const { OPENAI_API_KEY: key, OPENAI_BASE_URL: url } = process.env
  const address = {
    variable: 'OPENAI_BASE_URL',
    url: vendorEndpoint(settings),
    example: EXAMPLE_ADDRESS,
  }
  const findings = checkAddress(address, key ? 'OPENAI_API_KEY' : '')
  if (key || url || findings.length > 0) return findings
  const hint = 'MODEL requires OPENAI_API_KEY, or OPENAI_BASE_URL for your own server.'
  return [diagnostic('SET-OPENAI_API_KEY', hint)]
}

/** Return the address of the provider. */
export function vendorEndpoint(_settings: CoreSettings): string {
  return process.env.OPENAI_BASE_URL || 'https://api.openai.com/v1'
}
