// The spans of the encyclopedia.

import assert from 'node:assert/strict'
import { test } from 'node:test'

import { InMemorySpanExporter, NodeTracerProvider } from '@opentelemetry/sdk-trace-node'
import { SimpleSpanProcessor } from '@opentelemetry/sdk-trace-node'

import { Client, reply, toolCall } from './client.ts'
import { encyclopedia } from './fakes.ts'

test('a fetched article is a span', async () => {
  const exporter = new InMemorySpanExporter()
  const spanProcessors = [new SimpleSpanProcessor(exporter)]
  new NodeTracerProvider({ spanProcessors }).register()
  const { url: articlesUrl } = await encyclopedia()
  const script = [toolCall('look_up', { title: 'Heat pump' }), reply('Done.')]
  await new Client(script, { articlesUrl }).say('Look it up.')
  const [span] = exporter.getFinishedSpans()
  assert.equal(span?.name, 'fetch article')
  assert.equal(span?.attributes['http.response.status_code'], 200)
})
