// Runs turns in a render's own process: `node growth.mjs PROJECT TURNS`.
// Prints the bytes that a turn adds to the heap, of three rounds the median. The tool listens to the signal of the turn for ever.
import { createRequire } from 'node:module'
import { pathToFileURL } from 'node:url'

const [project, turns] = [process.argv[2], Number(process.argv[3])]
const load = (name) => import(pathToFileURL(`${project}/src/${name}.ts`).href)
const { TOOLS } = await load('agent')
const { app } = await load('app')
const { SETTINGS } = await load('harness/enabled')
const { TurnRequest } = await load('harness/contract')
const { Runtime } = await load('harness/runtime')
const { createSettings } = await load('harness/settings')

const listen = (signal) => signal.addEventListener('abort', () => Buffer.alloc(1))
if (Array.isArray(TOOLS)) {
  const { tool } = await import(createRequire(`${project}/`).resolve('@strands-agents/sdk'))
  TOOLS[0] = tool({
    name: 'word_count',
    description: 'Listens.',
    inputSchema: { type: 'object', properties: { text: { type: 'string' } } },
    callback: (_, { agent }) => (listen(agent.cancelSignal), 2),
  })
} else {
  TOOLS.word_count.execute = (_, { abortSignal }) => (listen(abortSignal), 2)
}

const settings = createSettings({ sessionCapacity: 8 }, SETTINGS)
const capabilities = await app.makeCapabilities(settings)
const runtime = new Runtime(settings, await app.load.agent(), app.load, capabilities)
await runtime.open()
for (const { memory } of runtime.capabilities.flatMap(({ collections = [] }) => collections)) {
  // The file of the local memory is read as a whole by each turn.
  Object.assign(memory, { retrieve: async () => [], createEvent: async () => {} })
}

/** Take turns, each with a signal of its own as the server has one, and return the heap in use. */
async function used(count) {
  for (let turn = 0; turn < count; turn++) {
    const request = { sessionId: `s${turn % 16}`, actor: 'ada', prompt: 'use word_count: a b' }
    await runtime.spawn(new TurnRequest(request), { signal: new AbortController().signal })
  }
  await new Promise((resolve) => setTimeout(resolve, 100))
  for (let round = 0; round < 4; round++) globalThis.gc()
  return process.memoryUsage().heapUsed
}

const heaps = [await used(turns)]
for (let round = 0; round < 3; round++) heaps.push(await used(turns))
const growth = heaps.slice(1).map((heap, round) => Math.round((heap - heaps[round]) / turns))
console.log(growth.toSorted((one, other) => one - other)[1])
process.exit(0)
