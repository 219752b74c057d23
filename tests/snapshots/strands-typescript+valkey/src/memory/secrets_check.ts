// Whether the secrets that the collections of an agent name are there: for `check`, in time.

import { statSync } from 'node:fs'
import { homedir } from 'node:os'
import { join } from 'node:path'

import type { Diagnostic } from '../settings.ts'
import { Unavailable } from './backends.ts'
import { read } from './frontmatter.ts'
import type { Options } from './options.ts'
import { loadProject } from './project.ts'
import { finding } from './rules.ts'
import { referencesOf, Secrets, variableOf } from './secrets.ts'
import { keepers } from './stores.ts'

const TRANSPORT = ['backend', 'transport']
const PLACES = [
  ...['endpoint_secret', 'bucket_secret'].map((name) => ['backend', name]),
  ...['base_url', 'function_arn', 'function_id'].map((name) => [...TRANSPORT, name]),
  ...['name', 'secret_id'].map((name) => [...TRANSPORT, 'credentials', name]),
]
// One of these is set, or one of these files is there, where somebody gave AWS credentials.
const AWS_VARIABLES = ['AWS_ACCESS_KEY_ID', 'AWS_PROFILE', 'AWS_WEB_IDENTITY_TOKEN_FILE']
AWS_VARIABLES.push('AWS_CONTAINER_CREDENTIALS_FULL_URI', 'AWS_CONTAINER_CREDENTIALS_RELATIVE_URI')
const AWS_FILES = { AWS_SHARED_CREDENTIALS_FILE: 'credentials', AWS_CONFIG_FILE: 'config' }

/**
 * What cannot be found, in a project in which `checkProject` finds no error.
 *
 * Without AWS credentials only the environment is looked at, and nothing is called.
 */
export async function checkSecrets(folder: string, options: Options): Promise<Diagnostic[]> {
  const [found, secrets]: [Diagnostic[], Secrets] = [[], new Secrets(options)]
  for (const collection of keepers(loadProject(folder, options.agentId))) {
    const file = `collections/${collection.collection_id}.collection.md`
    const document = read(join(folder, file), file)
    for (const looked of referencesOf(collection)) {
      const [reference] = looked
      const named = [reference, reference.replace(/^env:/, '')]
      const place = PLACES.find((one) => named.includes(document.text(one) ?? '\n'))
      const line = place ? document.line(place) : 1
      const variable = variableOf(reference)
      const hint = variable && `set ${variable}, or `
      const names = { name: reference, todo: `${hint}create it in AWS Secrets Manager` }
      const isSet = Boolean(process.env[variable]?.trim())
      if (reference.startsWith('env:') && !isSet) {
        found.push(finding('AML-W240', file, line, { name: variable }))
      } else if (!isSet && !hasAws()) {
        found.push(finding('AML-W242', file, line, names))
      } else {
        const why = await whyNot(secrets, looked)
        if (why) found.push(finding('AML-W241', file, line, { ...names, why }))
      }
    }
  }
  return found
}

/** Whether AWS credentials are given in the environment or in a file of this user. */
export function hasAws(): boolean {
  const files = Object.entries(AWS_FILES).map(
    ([name, file]) => process.env[name] || join(homedir(), '.aws', file),
  )
  const isFile = (file: string) => statSync(file, { throwIfNoEntry: false })?.isFile()
  return AWS_VARIABLES.some((name) => process.env[name]) || files.some(isFile)
}

/** Why a secret cannot be had; '' when it can. */
async function whyNot(secrets: Secrets, looked: Parameters<Secrets['get']>): Promise<string> {
  try {
    await secrets.get(...looked)
    return ''
  } catch (error) {
    if (!(error instanceof Unavailable)) throw error
    const said = error.message.replace(`secret '${looked[0]}': `, '')
    return said.split('; locally, ')[0]!
  }
}
