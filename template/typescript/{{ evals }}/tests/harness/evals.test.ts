// A failed or invalid case does not stop other cases; statistics are right.

import assert from 'node:assert/strict'
import { cpSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'

import { app } from '../../src/app.ts'
import { SETTINGS } from '../../src/harness/enabled.ts'
import { readCases } from '../../src/harness/evals/cases.ts'
import { failures, table } from '../../src/harness/evals/report.ts'
import { Runner } from '../../src/harness/evals/run.ts'
import { describeChange, fisherP, interval } from '../../src/harness/evals/statistics.ts'
import { Stubs } from '../../src/harness/evals/stubs.ts'
import { Runtime } from '../../src/harness/runtime.ts'
import { createSettings } from '../../src/harness/settings.ts'

const CASES = `\
cases:
  - name: greets
    turns: [{prompt: Hello., offline: [Hi.], expect: {reply: {contains: [Hi.]}}}]
  - name: says-goodbye
    turns: [{prompt: Hello., offline: [Hi.], expect: {reply: {contains: [Bye.]}}}]
  - name: has-no-turns
`

describe('three cases', () => {
  const folder = mkdtempSync(join(tmpdir(), 'evals-'))
  let runs: Awaited<ReturnType<Runner['runAll']>>

  before(async () => {
    cpSync(join(import.meta.dirname, '../../evals/schema.json'), join(folder, 'schema.json'))
    writeFileSync(join(folder, 'own.yaml'), CASES)
    const settings = createSettings({}, SETTINGS)
    const agent = await app.load.agent()
    const stubs = new Stubs(settings, [], app.load)
    const runtime = new Runtime(settings, agent, app.load, [stubs])
    const runner = new Runner(settings, runtime, runtime)
    const { signal } = new AbortController()
    const options = { repeat: 1, jobs: 2, stop: signal, done: () => {} }
    runs = await runner.runAll(readCases([], folder), options)
  })
  after(() => rmSync(folder, { recursive: true }))

  test('a valid case passes', () => {
    assert.equal(runs.greets?.[0]?.turns[0]?.reply, 'Hi.')
    assert.match(table(runs, {}), /^greets +0 +0\.\d  passed$/m)
  })

  test('output explains a failed case', () => {
    assert.match(table(runs, {}), /^says-goodbye +0 +0\.\d  FAILED/m)
    assert.match(failures(runs), /the reply lacks "Bye\."/)
  })

  test('output names the line of an invalid case', () => {
    assert.match(failures(runs), /own\.yaml:6: it must have required property 'turns'/)
  })
})

test('pass rate has a Wilson interval', () => {
  const [low, high] = interval(7, 10)
  assert.equal(low.toFixed(2), '0.40')
  assert.equal(high.toFixed(2), '0.89')
})

test('Fisher p of two pass rates', () => {
  assert.equal(fisherP(7, 10, 10, 10).toFixed(2), '0.21')
  assert.ok(fisherP(0, 10, 10, 10) < 0.001)
})

test('change is described only with enough runs', () => {
  assert.equal(describeChange(0, 3, 3, 3), 'too few runs to compare')
  assert.equal(describeChange(1, 5, 5, 5), 'significantly worse (p = 0.048)')
})
