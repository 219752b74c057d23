// The commands of an agent with memory: `check` of its files too, `sessions`, `forget`, `iam`.

import { parseArgs } from 'node:util'

import { checkModel } from '../model.ts'
import { type Diagnostic, diagnostic, readSettings } from '../settings.ts'
import { checkEndpoint, MESSAGES } from './endpoint.ts'
import { forget } from './forget.ts'
import { read } from './frontmatter.ts'
import { type Options, readOptions } from './options.ts'
import { checkPolicy, iam } from './policy.ts'
import { checkProject, loadProject } from './project.ts'
import { checkResources } from './resource_check.ts'
import { Secrets } from './secrets.ts'
import { checkSecrets } from './secrets_check.ts'
import { Refusal, sessions } from './session_commands.ts'

const USAGE = `Usage: node src/memory/main.ts COMMAND

  serve                                serve the agent over HTTP on HOST and PORT
  chat [--session ID] [--actor ID]     talk to the agent here, also line by line from a pipe
  check [--json] [--against REF]       say what is wrong with settings, collections and agents,
        [--endpoint]                   also since a commit, or with custom endpoints
  sessions list [--json]               print the ids of all sessions
  sessions show SESSION [--json]       print what is stored of a session
  sessions restore SESSION CHECKPOINT  take a session back to a checkpoint
  sessions end SESSION                 delete all that is stored of a session
  forget --actor ID [--json]           erase an actor's sessions, events and records
  iam [--save]                         print the policy that the agent's role needs on AWS`
const ORDER = ['severity', 'file', 'line', 'id'] as const // "error" is before "warning"

/** Say what is wrong with the settings, collections and agents; exit with 1 for an error. */
async function check(asJson: boolean, against: string | null, isCalled: boolean): Promise<void> {
  const [settings, found] = readSettings()
  const [options, wrong] = readOptions()
  found.push(...wrong, ...(await checkModel(settings)))
  found.push(...checkProject('.', options.agentId, against))
  const isWrong = found.some((one) => one.severity === 'error')
  if (!isWrong) {
    found.push(...(await checkSecrets('.', options)), ...checkPolicy('.', options))
    found.push(...(await checkResources('.', options)))
  }
  if (isCalled && !isWrong) found.push(...(await checkEndpoints(options)))
  found.sort((one, other) => {
    const name = ORDER.find((key) => one[key] !== other[key])
    return name === undefined ? 0 : one[name] < other[name] ? -1 : 1
  })
  const errors = found.filter((one) => one.severity === 'error').length
  const warnings = found.length - errors
  if (asJson) {
    console.log(JSON.stringify({ diagnostics: found, errors, warnings }))
  } else {
    const lines = found.map((one) => `${one.file}:${one.line} ${one.id} ${one.message}`)
    console.log([...lines, `${errors} errors, ${warnings} warnings`].join('\n'))
  }
  process.exitCode = Math.min(errors, 1)
}

async function checkEndpoints(options: Options): Promise<Diagnostic[]> {
  const found: Diagnostic[] = []
  let isCalled = false
  const { agentId, collections, reads, writes } = loadProject('.', options.agentId)
  for (const id of new Set([...reads, ...writes])) {
    const [collection, file] = [collections.get(id), `collections/${id}.collection.md`]
    if (collection?.backend.type !== 'custom') continue
    const where = { file, line: read(file, file).line(['backend', 'transport']) }
    const secrets = new Secrets(options)
    found.push(...(await checkEndpoint(collection, agentId, options, secrets, where)))
    isCalled = true
  }
  if (isCalled) return found
  const where = { file: `agents/${agentId}.agent.md`, line: 1 }
  return [{ ...diagnostic('AML-C00', MESSAGES['AML-C00']), ...where }]
}

/** Run the command; throws Refusal, and for an option that it does not have. */
async function run([command, ...args]: string[]): Promise<void> {
  const [text, flag] = [{ type: 'string' }, { type: 'boolean' }] as const
  if (command === 'serve' || command === 'chat') {
    await import('../main.ts') // which reads the arguments itself
  } else if (command === 'check') {
    const options = { json: flag, against: text, endpoint: flag }
    const { json = false, against = null, endpoint = false } = parseArgs({ args, options }).values
    await check(json, against, endpoint)
  } else if (command === 'sessions') {
    await sessions(args, USAGE)
  } else if (command === 'forget') {
    await forget(args)
  } else if (command === 'iam') {
    iam(args)
  } else if (command === '--help') {
    console.log(USAGE)
  } else {
    throw new Refusal(
      `${command ? `No such command '${command}'.` : 'Missing command.'}\n${USAGE}`,
      2,
    )
  }
}

run(process.argv.slice(2)).catch((error) => {
  const isRefusal = error instanceof Refusal
  if (!isRefusal && !error.code?.startsWith('ERR_PARSE_ARGS')) throw error
  console.error(`Error: ${error.message}`)
  process.exitCode = isRefusal ? error.code : 2
})
