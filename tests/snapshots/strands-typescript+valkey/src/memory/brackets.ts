// Quotes and brackets of YAML that may be broken, a line at a time.

export const QUOTED = `"(?:[^"\\\\]|\\\\.)*"|'(?:[^']|'')*'`
const ESCAPE = /\\([0abtnvfre "/\\N_LP]|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})/g
const TOKEN = new RegExp(
  `(?<blank> +|(?<![^ ])#.*)|(?<text>${QUOTED})|(?<quote>["'])|(?<open>[\\[{])` +
    '|(?<close>[\\]}])|(?<mark>[&*!][^ ,\\[\\]{}]*)|(?<next>[,:])' +
    '|(?<plain>[^ ,:#\\[\\]{}](?:[^,:#\\[\\]{}]|:(?! |$)|(?<! )#)*)|(?<odd>.)',
  'g',
)

/** Reads values in quotes and brackets; `open` has the brackets around, each with its line. */
export class Brackets {
  readonly open: [bracket: string, line: number][] = []

  /** The rule that a line breaks from `start` on, after the lines so far. */
  read(line: string, start: number, number: number): string | null {
    let last = '' // what stands before: a kind of token, or a comma or colon
    TOKEN.lastIndex = start // where matchAll begins
    for (const { 0: token, groups = {} } of line.matchAll(TOKEN)) {
      const kind = Object.keys(groups).find((name) => groups[name] !== undefined)!
      const text = stripped(token)
      const isValue = ['text', 'open', 'mark', 'plain'].includes(kind)
      if (kind === 'quote' || (last === 'text' && (isValue || kind === 'odd'))) return 'E0D3'
      if (kind === 'text' && text[0] === '"' && text.replace(ESCAPE, '').includes('\\')) {
        return 'E0D7'
      }
      if (kind === 'open') {
        this.open.push([text, number])
      } else if (kind === 'close' && this.open.length > 0) {
        if (!['[]', '{}'].includes(this.open.at(-1)![0] + text)) return 'E0D4'
        this.open.pop()
      } else if (kind !== 'blank' && this.open.length === 0 && last) {
        return last === 'text' ? 'E0D3' : 'E002'
      } else if (kind === 'close' || kind === 'odd' || this.#isStray(text, last)) {
        return 'E002'
      }
      last = kind === 'blank' ? last : kind === 'next' ? text : kind
    }
    return null
  }

  /** Whether an indicator stands where no value may be, or a pair lacks its braces. */
  #isStray(text: string, last: string): boolean {
    if (text === ',') return last === ',' || last === 'open'
    return text === '-' || text === '?' || (text === ':' && this.open.at(-1)?.[0] === '[')
  }
}

/** A text without the blanks at its end. */
export function stripped(text: string): string {
  let end = text.length
  while (text[end - 1] === ' ') end -= 1
  return text.slice(0, end)
}
