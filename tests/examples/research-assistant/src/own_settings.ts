// The settings of the research assistant: `articlesUrl` is the variable ARTICLES_URL.

import { type CoreSettings, secret, type SettingsOf, string, stringList } from './harness/index.ts'

const ADDRESS = 'https?://.+'

export const OWN_SETTINGS = {
  // The encyclopedia.
  articlesUrl: string(ADDRESS, 'an address', 'https://en.wikipedia.org/api/rest_v1/page/summary'),
  // Where notes are, with a password; unset: in the process.
  notesUrl: secret(),
  // The models that a request may choose.
  researchModels: stringList('[\\w./:-]+', 'names of models', ['gpt-5', 'gpt-5-mini']),
  // Where the answers to POST /questions are sent; unset: there is no such route.
  answersUrl: string(ADDRESS, 'an address'),
  // The key of share links; unset: there are none.
  shareSecret: secret(),
  // The path in front of all others, such as /research.
  basePath: string('(/[a-z0-9-]+)+', 'a path such as /research'),
}

export type Settings = CoreSettings & SettingsOf<typeof OWN_SETTINGS>
