// What a custom endpoint does otherwise than its contract wants: `check --endpoint`.

import { type Diagnostic, diagnostic } from '../settings.ts'
import { Unavailable } from './backends.ts'
import { UNSENT } from './causes.ts'
import { openTransport } from './custom_store.ts'
import { EndpointCheck } from './endpoint_check.ts'
import type { Collection } from './models.ts'
import { Operations } from './operations.ts'
import type { Options } from './options.ts'
import { referencesOf, type Secrets } from './secrets.ts'

// Finding -> what the endpoint did, and what the contract wants.
export const MESSAGES = {
  'AML-C00': 'This agent names no collection with backend.type custom: nothing was called.',
  'AML-C01': 'The endpoint does not do what the contract says: {0}.',
  'AML-C02': 'load_snapshot answered a snapshot of an unknown session: answer null.',
  'AML-C03': 'load_manifest answered a manifest of an unknown session: answer null.',
  'AML-C04': 'list_snapshot_ids answered ids of an unknown session: answer an empty list.',
  'AML-C05': 'load_snapshot answered another snapshot than was saved: keep it as it is.',
  'AML-C06': 'load_snapshot answered an old snapshot: the last one saved as latest counts.',
  'AML-C07': 'load_snapshot answered the snapshot of another scope: keep scopes apart.',
  'AML-C08': 'An ETag was not that of the last save: make a new one at each save.',
  'AML-C09': '{0} of {1} saves that replace the same ETag were accepted: accept one.',
  'AML-C10': 'A save with the If-Match of an older ETag was accepted: answer 412.',
  'AML-C11': 'A save with If-None-Match: * replaced a snapshot: answer 412.',
  'AML-C12': 'A load with the If-None-Match of an older ETag got 304: answer the snapshot.',
  'AML-C13': 'load_snapshot answered another checkpoint than was saved under its id.',
  'AML-C14': 'A save with is_latest false changed latest: keep it under its id only.',
  'AML-C15': 'list_snapshot_ids took no notice of limit or start_after, or left ids out.',
  'AML-C16': 'load_manifest answered another manifest than was saved: keep it as it is.',
  'AML-C17': 'delete_session left something of the session: delete all of it.',
  'AML-C18': 'A call without credentials was answered: refuse it with 401.',
  'AML-C19': 'A save without a condition was refused as a conflict: accept it.',
  'AML-C20': 'No ETag came: of two instances in one session the last to save wins. Send one.',
  'AML-C21': 'The endpoint was not called: {0}.',
}

export type Failure = keyof typeof MESSAGES

/** The findings of a custom collection, at the line of its transport. */
export async function checkEndpoint(
  collection: Collection,
  agentId: string,
  options: Options,
  secrets: Secrets,
  where: { file: string; line: number },
): Promise<Diagnostic[]> {
  const check = new EndpointCheck(agentId)
  let endpoint: Operations
  try {
    for (const looked of referencesOf(collection)) await secrets.get(...looked)
    endpoint = new Operations(openTransport(collection, options, secrets))
  } catch (error) {
    if (!(error instanceof Unavailable)) throw error
    const message = MESSAGES['AML-C21'].replace('{0}', () => error.message)
    return [{ ...diagnostic('AML-C21', message), ...where }]
  }
  try {
    await check.run(endpoint)
    const { scheme } = (collection.backend.type === 'custom' &&
      collection.backend.transport?.credentials) || { scheme: 'none' }
    if (scheme === 'api-key' || scheme === 'bearer-token') {
      await check.runAsStranger(new Operations(openTransport(collection, options, null)))
    }
  } catch (error) {
    if (!(error instanceof Unavailable)) throw error
    const isCalled = ![...UNSENT].some((words) => error.message.includes(words))
    check.say(isCalled ? 'AML-C01' : 'AML-C21', error.message)
  }
  return [...check.found].toSorted().map(([id, names]) => {
    const message = MESSAGES[id].replace(/\{(\d)\}/g, (_, at) => String(names[at]))
    const severity = id === 'AML-C20' ? 'warning' : 'error'
    return { ...diagnostic(id, message), severity, ...where }
  })
}
