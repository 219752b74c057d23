// Tells the results: a table, transcripts, and files for CI.

import { type Run, type Runs, transcript } from './run.ts'
import { byChance, interval, SURE } from './statistics.ts'

const ESCAPES: Record<string, string> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' }

/** Return how many runs passed. */
export function passed(runs: readonly Run[]): number {
  return runs.filter(({ failures }) => failures.length === 0).length
}

/** Return the result of a case in words, compared with an earlier one. */
export function verdict(runs: readonly Run[], before: readonly Run[] = []): string {
  if (runs[0]?.skipped) return 'skipped'
  const [count, number] = [passed(runs), runs.length]
  let text = count === number ? 'passed' : 'FAILED'
  if (number > 1) {
    const [low, high] = interval(count, number).map(percent)
    text += ` ${count}/${number} (${low} to ${high})`
  }
  const [earlier, numberBefore] = [passed(before), before.length]
  if (before.length > 0 && !before[0]?.skipped && earlier * number !== count * numberBefore) {
    const chance = byChance(count, number, earlier, numberBefore)
    const sure = chance < SURE ? 'more than chance' : `by chance in ${percent(chance)}`
    text += `, before ${earlier}/${numberBefore}, ${sure}`
  }
  return text
}

function percent(share: number): string {
  return `${Math.round(share * 100)}%`
}

/** Return a line for each case: its result, tokens and time. */
export function table(all: Runs, before: Runs): string {
  const width = Math.max(4, ...Object.keys(all).map((name) => name.length))
  const lines = Object.entries(all).map(([name, runs]) => {
    const seconds = sum(runs, 'seconds').toFixed(1).padStart(7)
    const tokens = String(sum(runs, 'tokens')).padStart(6)
    return `${name.padEnd(width)}  ${tokens}  ${seconds}  ${verdict(runs, before[name])}`
  })
  return [`${'case'.padEnd(width)}  tokens  seconds  result`, ...lines].join('\n')
}

/** Return the tokens or the seconds of runs. */
export function sum(runs: readonly Run[], what: 'seconds' | 'tokens'): number {
  return runs.reduce((total, run) => total + (run[what] ?? 0), 0)
}

/** Return the first run of each case that failed: its transcript, and why. */
export function failures(all: Runs): string {
  const shown = Object.entries(all).flatMap(([name, runs]) => {
    const run = runs.find(({ failures }) => failures.length > 0)
    if (!run) return []
    const why = run.failures.map((failure) => `- ${failure}`)
    const place = run.place && run.place !== name ? ` (${run.place})` : ''
    const lines = [`${name}${place}`, ...transcript(run.turns).split('\n'), ...why]
    return [lines.filter(Boolean).join('\n    ')]
  })
  return shown.join('\n\n')
}

/** Return the results as JUnit XML. */
export function junit(all: Runs): string {
  const cases = Object.entries(all).map(([name, runs]) => {
    const time = sum(runs, 'seconds').toFixed(3)
    const open = `<testcase name="${escape(name)}" classname="evals" time="${time}"`
    const [first] = runs
    if (first?.skipped) return `${open}><skipped message="${escape(first.skipped)}" /></testcase>`
    if (passed(runs) === runs.length) return `${open} />`
    const why = escape(failures({ [name]: runs }))
    return `${open}><failure message="${escape(verdict(runs))}">${why}</failure></testcase>`
  })
  return `<testsuite name="evals" tests="${cases.length}">${cases.join('')}</testsuite>\n`
}

/** Return Markdown: the table, and for each case that changed both transcripts. */
export function summary(all: Runs, before: Runs): string {
  const rows = Object.entries(all).map(([name, runs]) => {
    return `| ${name} | ${verdict(runs, before[name])} |`
  })
  const tokens = sum(Object.values(all).flat(), 'tokens')
  const head = ['### Evals', '', '| case | result |', '|---|---|']
  const lines = [...head, ...rows, '', `${tokens} tokens.`]
  for (const [name, runs] of Object.entries(all)) {
    const said = transcript(runs[0]?.turns ?? [])
    const earlier = transcript(before[name]?.[0]?.turns ?? [])
    if (said === earlier || (!earlier && passed(runs) === runs.length)) continue
    const cells = [earlier, said].map((text) => `<td><pre>${plain(text.slice(0, 4000))}</pre></td>`)
    lines.push('', `<details><summary>${escape(name)}</summary><table>`)
    lines.push('<tr><th>before</th><th>now</th></tr>', `<tr>${cells.join('')}</tr>`)
    lines.push('</table></details>')
  }
  return `${lines.join('\n')}\n`
}

/** Return a text for HTML in Markdown: a blank line would end the HTML, and @ tell somebody. */
function plain(text: string): string {
  return escape(text).replaceAll('\n', '&#10;').replaceAll('@', '&#64;')
}

/** Return a text for XML, without the characters that it does not allow. */
function escape(text: string): string {
  const allowed = text.toWellFormed().replace(/[^\n\x20-\ufffd\u{10000}-\u{10ffff}]/gu, '')
  return allowed.replace(/[&<>"]/g, (one) => ESCAPES[one]!)
}
