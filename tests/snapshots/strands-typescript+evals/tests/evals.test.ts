// Cases pass, fail and are reported, each on its own.

import assert from 'node:assert/strict'
import { cpSync, mkdtempSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'

import { SETTINGS } from '../src/capabilities.ts'
import { readCases } from '../src/evals/cases.ts'
import { failures, table } from '../src/evals/report.ts'
import { Runner } from '../src/evals/run.ts'
import { describeChange, fisherP, interval } from '../src/evals/statistics.ts'
import { Stubs } from '../src/evals/stubs.ts'
import { Runtime } from '../src/runtime.ts'
import { createSettings } from '../src/settings.ts'

const CASES = `\
cases:
  - name: greets
    turns: [{prompt: Hello., offline: [Hi.], expect: {reply: {contains: [Hi.]}}}]
  - name: says-goodbye
    turns: [{prompt: Hello., offline: [Hi.], expect: {reply: {contains: [Bye.]}}}]
  - name: has-no-turns
`

test('a case that fails or is wrong leaves the others', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'evals-'))
  cpSync(join(import.meta.dirname, '../evals/schema.json'), join(folder, 'schema.json'))
  writeFileSync(join(folder, 'own.yaml'), CASES)
  const settings = createSettings({}, SETTINGS)
  const runtime = new Runtime(settings, [new Stubs(settings, [])])
  const runner = new Runner(settings, runtime, runtime)
  const stop = new AbortController().signal
  const options = { repeat: 1, jobs: 2, stop, done: () => {} }
  const runs = await runner.runAll(readCases([], folder), options)
  assert.match(table(runs, {}), /greets +0 +0\.\d  passed\nsays-goodbye +0 +0\.\d  FAILED/)
  assert.match(failures(runs), /the reply lacks "Bye\."/)
  assert.match(failures(runs), /own\.yaml:6: it must have required property 'turns'/)
  assert.equal(runs.greets?.[0]?.turns[0]?.reply, 'Hi.')
})

test('a share has an interval, and a difference a p-value', () => {
  assert.deepEqual(
    interval(7, 10).map((end) => end.toFixed(2)),
    ['0.40', '0.89'],
  )
  assert.equal(fisherP(7, 10, 10, 10).toFixed(2), '0.21')
  assert.ok(fisherP(0, 10, 10, 10) < 0.001)
  assert.equal(describeChange(0, 3, 3, 3), 'too few runs to compare')
  assert.equal(describeChange(1, 5, 5, 5), 'significantly worse (p = 0.048)')
})
