// Formats results: a table, transcripts, and files for CI.

import { type Run, type Runs, transcript } from './run.ts'
import { describeChange, interval } from './statistics.ts'

const SUMMARY_ROWS = 200
const SUMMARY_LIMIT = 60_000 // characters; a comment on GitHub has at most 65,536
const EXAMPLE_LIMIT = 4_000 // characters of an example in a summary
const ESCAPES: Record<string, string> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' }

/** Return how many runs passed. */
export function passed(runs: readonly Run[]): number {
  return runs.filter(({ failures, error }) => failures.length === 0 && !error).length
}

/** Return how many runs have no result, because the judge was unavailable. */
export function errors(runs: readonly Run[]): number {
  return runs.filter(({ error }) => error).length
}

/** Return the result of a case, compared with earlier runs. */
export function verdict(runs: readonly Run[], before: readonly Run[] = []): string {
  if (runs[0]?.skipped) return 'skipped'
  const count = passed(runs)
  const number = runs.length
  const errorCount = errors(runs)
  if (errorCount > 0) return number > 1 ? `ERROR ${errorCount}/${number}` : 'ERROR'
  let text = count === number ? 'passed' : 'FAILED'
  if (number > 1) text += ` ${count}/${number}`
  if (number > 1 && !isOffline(runs)) {
    const [low, high] = interval(count, number).map((share) => `${Math.round(share * 100)}%`)
    text += ` (${low} to ${high})`
  }
  const countBefore = passed(before)
  const numberBefore = before.length
  const isSame = countBefore * number === count * numberBefore
  if (!areComparable(runs, before) || isSame) return text
  text += `, before ${countBefore}/${numberBefore}`
  if (!isOffline(runs)) {
    return `${text}: ${describeChange(count, number, countBefore, numberBefore)}`
  }
  // The offline model is scripted: any difference is a change.
  if (countBefore === numberBefore) return `${text}: broken`
  return count === number ? `${text}: fixed` : text
}

function isOffline(runs: readonly Run[]): boolean {
  return runs[0]?.model === 'offline'
}

function areComparable(runs: readonly Run[], before: readonly Run[] = []): boolean {
  const isIncomplete = [...runs, ...before].some(({ skipped, error }) => skipped || error)
  return before.length > 0 && !isIncomplete && isOffline(runs) === isOffline(before)
}

type Row = readonly [name: string, runs: readonly Run[], result: string]

/** Return a row (name, runs, verdict) for all comparable cases together, and for each case. */
function rowsOf(all: Runs, before: Runs): Row[] {
  const rows = Object.entries(all).map(([name, runs]): Row => {
    return [name, runs, verdict(runs, before[name])]
  })
  const shared = Object.entries(all).filter(([name, runs]) => {
    return areComparable(runs, before[name]) && !isOffline(runs)
  })
  if (shared.length < 2) return rows
  // A small decline in many cases is significant only for all of them together.
  const now = shared.flatMap(([, runs]) => runs)
  const earlier = shared.flatMap(([name]) => before[name] ?? [])
  return [[`all ${shared.length} cases`, now, verdict(now, earlier)], ...rows]
}

/** Return a table with one line per case: tokens, seconds and result. */
export function table(all: Runs, before: Runs): string {
  const rows = rowsOf(all, before)
  const width = Math.max(4, ...rows.map(([name]) => name.length))
  const lines = rows.map(([name, runs, result]) => {
    const seconds = sum(runs, 'seconds').toFixed(1).padStart(7)
    const tokens = String(sum(runs, 'tokens')).padStart(6)
    return `${name.padEnd(width)}  ${tokens}  ${seconds}  ${result}`
  })
  return [`${'case'.padEnd(width)}  tokens  seconds  result`, ...lines].join('\n')
}

/** Return the total tokens or seconds of runs. */
export function sum(runs: readonly Run[], field: 'seconds' | 'tokens'): number {
  return runs.reduce((total, run) => total + (run[field] ?? 0), 0)
}

/** Return the transcript and the failures of each failed case, from its first failed run. */
export function failures(all: Runs): string {
  const failed = Object.entries(all).filter(([, runs]) => passed(runs) < runs.length)
  const texts = failed.map(([name, runs]) => {
    const place = runs[0]?.place
    const head = place && place !== name ? `${name} (${place})` : name
    return [head, ...example(runs).split('\n')].filter(Boolean).join('\n    ')
  })
  return texts.join('\n\n')
}

/** Return the transcript and failures of the first failed run, or else of the first run. */
function example(runs: readonly Run[]): string {
  const run = runs.find(({ failures, error }) => failures.length > 0 || error) ?? runs[0]
  if (!run) return ''
  const reasons = run.error ? [...run.failures, run.error] : run.failures
  return [transcript(run.turns), ...reasons.map((reason) => `- ${reason}`)].join('\n')
}

/** Return the results as JUnit XML. */
export function junit(all: Runs): string {
  const cases = Object.entries(all).map(([name, runs]) => {
    const time = sum(runs, 'seconds').toFixed(3)
    const open = `<testcase name="${escape(name)}" classname="evals" time="${time}"`
    const [first] = runs
    if (first?.skipped) return `${open}><skipped message="${escape(first.skipped)}" /></testcase>`
    if (passed(runs) === runs.length) return `${open} />`
    const details = escape(failures({ [name]: runs }))
    const kind = errors(runs) > 0 ? 'error' : 'failure'
    return `${open}><${kind} message="${escape(verdict(runs))}">${details}</${kind}></testcase>`
  })
  return `<testsuite name="evals" tests="${cases.length}">${cases.join('')}</testsuite>\n`
}

/** Return Markdown: the table, and examples of changed cases; failed cases come first. */
export function summary(all: Runs, before: Runs): string {
  const rows = rowsOf(all, before).toSorted(([, left], [, right]) => {
    return Number(passed(left) === left.length) - Number(passed(right) === right.length)
  })
  const lines = ['### Evals', '', '| case | result |', '|---|---|']
  for (const [name, , result] of rows.slice(0, SUMMARY_ROWS)) lines.push(`| ${name} | ${result} |`)
  if (rows.length > SUMMARY_ROWS) lines.push(`| ${rows.length - SUMMARY_ROWS} more | |`)
  const tokens = sum(Object.values(all).flat(), 'tokens')
  let text = [...lines, '', `${tokens} tokens.`, ''].join('\n')
  let omitted = 0
  for (const [name, runs] of rows) {
    if (!Object.hasOwn(all, name)) continue
    const earlier = example(before[name] ?? [])
    const now = example(runs)
    if (now === earlier || (!earlier && passed(runs) === runs.length)) continue
    const cells = [earlier, now].map((text) => `<td><pre>${escapeInMarkdown(text)}</pre></td>`)
    const details = [
      '',
      `<details><summary>${escape(name)}</summary><table>`,
      `<tr><th>before</th><th>now</th></tr>`,
      `<tr>${cells.join('')}</tr>`,
      '</table></details>',
      '',
    ].join('\n')
    if (text.length + details.length > SUMMARY_LIMIT) omitted += 1
    else text += details
  }
  return omitted > 0 ? `${text}\n${omitted} more examples do not fit here.\n` : text
}

/** Escape text for HTML in Markdown: a blank line ends the HTML, and @ notifies users. */
function escapeInMarkdown(text: string): string {
  const half = EXAMPLE_LIMIT / 2
  // The failures are at the end.
  const short =
    text.length > EXAMPLE_LIMIT ? `${text.slice(0, half)}\n...\n${text.slice(-half)}` : text
  return escape(short).replaceAll('\n', '&#10;').replaceAll('@', '&#64;')
}

/** Escape text for XML, and remove characters that XML forbids. */
function escape(text: string): string {
  const allowed = text.toWellFormed().replace(/[^\n\x20-\ufffd\u{10000}-\u{10ffff}]/gu, '')
  return allowed.replace(/[&<>"]/g, (character) => ESCAPES[character]!)
}
