// The spans of the encyclopedia.

import assert from 'node:assert/strict'
import { test } from 'node:test'

import { InMemorySpanExporter, NodeTracerProvider } from '@opentelemetry/sdk-trace-node'
import { SimpleSpanProcessor } from '@opentelemetry/sdk-trace-node'

import { openClient, reply, toolCall } from './client.ts'
import { encyclopedia } from './fakes.ts'

test('a fetched article is a span below that of its tool', async (context) => {
  const exporter = new InMemorySpanExporter()
  const spanProcessors = [new SimpleSpanProcessor(exporter)]
  new NodeTracerProvider({ spanProcessors }).register()
  const { url: articlesUrl } = await encyclopedia()
  const script = [toolCall('look_up', { title: 'Heat pump' }), reply('Done.')]
  const client = await openClient(context, script, { articlesUrl })
  await client.say('Look it up.')
  const spans = exporter.getFinishedSpans()
  const tool = spans.find(({ name }) => name === 'execute_tool look_up')
  const span = spans.find(({ name }) => name === 'fetch article')
  assert.equal(span?.attributes['http.response.status_code'], 200)
  assert.equal(span?.parentSpanContext?.spanId, tool?.spanContext().spanId)
})
