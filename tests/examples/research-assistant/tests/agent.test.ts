// Turns of the research assistant, whose model plays a script.

import assert from 'node:assert/strict'
import { test } from 'node:test'

import { openClient, reply, toolCall } from './client.ts'
import { encyclopedia } from './fakes.ts'

const HEAT_PUMP = {
  title: 'Heat pump',
  extract: 'About Heat pump.',
  url: 'https://encyclopedia.example/Heat%20pump',
}

test('articles of one step are fetched at the same time, and each only once', async (context) => {
  const { url: articlesUrl, titles } = await encyclopedia(2)
  const calls = ['Heat pump', 'Insulation', 'Heat pump'].map((title, at) => {
    return toolCall('look_up', { title }, `call-${at}`)
  })
  const again = toolCall('look_up', { title: 'Insulation' }, 'again')
  const client = await openClient(context, [calls, again, reply('Done.')], { articlesUrl })
  assert.equal((await client.say('Compare them.')).reply, 'Done.')
  assert.deepEqual(titles, ['Heat pump', 'Insulation'])
})

test('an article that does not exist is an error for the model', async (context) => {
  const { url: articlesUrl } = await encyclopedia()
  const script = [toolCall('look_up', { title: 'Nothing' }), reply('I found nothing.')]
  const client = await openClient(context, script, { articlesUrl })
  assert.equal((await client.say('Look it up.')).reply, 'I found nothing.')
})

test('a caller sees the progress, the value and the source of an article', async (context) => {
  const { url: articlesUrl } = await encyclopedia()
  const script = [toolCall('look_up', { title: 'Heat pump' }), reply('Done.')]
  const client = await openClient(context, script, { articlesUrl })
  const { text } = await client.stream('Look it up.')
  assert.ok(text.includes('event: data\ndata: {"name":"progress","value":{"title":"Heat pump"}}'))
  const { title, url } = HEAT_PUMP
  assert.ok(text.includes(`event: source\ndata: ${JSON.stringify({ url, title })}`))
})

test('a report ends the turn, and is the reply', async (context) => {
  const findings = [{ claim: 'It moves heat.', url: HEAT_PUMP.url }]
  const script = [toolCall('report', { title: 'Heat pumps', findings }), reply('Never said.')]
  const client = await openClient(context, script)
  const { reply: text } = await client.say('Report.')
  assert.equal(text, `# Heat pumps\n- It moves heat. (${HEAT_PUMP.url})`)
  assert.equal(client.model.requests.length, 1)
})
