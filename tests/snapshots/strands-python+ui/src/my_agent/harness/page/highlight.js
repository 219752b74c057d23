// The kinds of the parts of code, which page.css colors.
//
// A model can send any code, and the page may not start a worker that it could stop. So the time
// grows with the length only: no pattern looks at a character more than a few times. A string or
// comment that is not closed ends with its line or the code. A pattern that may fail after a long
// run is followed by one that takes the run.

const MAX_LENGTH = 50_000 // characters; longer code is not colored

const LINE_COMMENT = /\/\/.*/
const BLOCK_COMMENT = /\/\*[^]*?(?:\*\/|(?![^]))/
const HASH_COMMENT = /(?<!\S)#.*/
const DOUBLE = /"(?:[^"\\\n]|\\[^])*"?/
const SINGLE = /'(?:[^'\\\n]|\\[^])*'?/
const BACKTICK = /`(?:[^`\\]|\\[^])*`?/
const TRIPLE_DOUBLE = /"""(?:\\?[^])*?(?:"""|(?![^]))/
const TRIPLE_SINGLE = /'''(?:\\?[^])*?(?:'''|(?![^]))/
const NUMBER = /\d[\w.]*/
const WORD = /[\p{L}_$][\p{L}\p{N}_$]*/
const SHELL_WORD = /[\p{L}\p{N}_./~][\p{L}\p{N}_./~'-]*/ // not the beginning of a string in "don't"

const C_LIKE = {
  comment: [LINE_COMMENT, BLOCK_COMMENT],
  string: [DOUBLE, SINGLE],
  number: [NUMBER],
  word: [WORD],
}
const WITH_BACKTICKS = { ...C_LIKE, string: [DOUBLE, SINGLE, BACKTICK] }
const JS_KEYWORDS =
  'as async await break case catch class const continue debugger default delete do else export ' +
  'extends false finally for from function get if import in instanceof let new null of return ' +
  'set static super switch this throw true try typeof undefined var void while with yield'
const TS_KEYWORDS =
  'abstract any boolean declare enum implements infer interface is keyof namespace never number ' +
  'object private protected public readonly satisfies string symbol type unknown'
const SHELL = {
  comment: [HASH_COMMENT],
  string: [DOUBLE, SINGLE],
  key: [/\$(?:\w+|\{[^}\n]*\}?|[@*#?!$-])/, /\w+(?==)/, /(?<!\S)--?\w[\w-]*/],
  call: [/(?<=^[ \t]{0,20}(?:\$ )?|[|;&(][ \t]?)[\p{L}_./~][\p{L}\p{N}_./~-]*/],
  number: [/\d+(?![\p{L}\p{N}_./~'-])/],
  word: [SHELL_WORD],
}
const INI = {
  comment: [HASH_COMMENT, /^;.*/],
  keyword: [/^[ \t]*\[.*\][ \t]*$/],
  key: [/^[ \t]*[\w"'][^\n\u2028\u2029=#]*(?==)/],
  string: [TRIPLE_DOUBLE, TRIPLE_SINGLE, DOUBLE, SINGLE],
  number: [NUMBER],
  word: [SHELL_WORD],
}
const MARKUP = {
  comment: [/<!--[^]*?(?:-->|(?![^]))/],
  keyword: [/<[/!?]?[\w:.-]+/, /[/?]?>/],
  string: [/(?<==\s?)(?:"[^"]*"?|'[^']*'?)/],
  key: [/[\w:.-]+(?=\s?=)/],
  number: [/&[#\w]{1,9};/],
  word: [/[\w:.-]+/],
}

// The names of a language, its patterns by kind (the first match decides), and its keywords.
const LANGUAGES = new Map()

add('js javascript jsx mjs cjs', WITH_BACKTICKS, JS_KEYWORDS)
add('ts typescript tsx', WITH_BACKTICKS, `${JS_KEYWORDS} ${TS_KEYWORDS}`)
add(
  'py python python3 pyi',
  {
    comment: [/#.*/],
    string: [TRIPLE_DOUBLE, TRIPLE_SINGLE, DOUBLE, SINGLE],
    call: [/@[\w.]+/],
    number: [NUMBER],
    word: [WORD],
  },
  'False None True and as assert async await break case class continue def del elif else except ' +
    'finally for from global if import in is lambda match nonlocal not or pass raise return ' +
    'self try while with yield',
)
add(
  'json jsonc json5 jsonl',
  {
    comment: [LINE_COMMENT, BLOCK_COMMENT],
    key: [/"(?:[^"\\\n]|\\[^])*"(?=\s{0,9}:)/],
    string: [DOUBLE],
    number: [/-?\d[\w.+-]*/],
    word: [WORD],
  },
  'false null true',
)
add(
  'sh bash shell zsh console shellsession',
  SHELL,
  'case do done elif else esac exit export fi for function if in local return set source then ' +
    'unset until while',
)
add(
  'dockerfile docker',
  SHELL,
  'ADD ARG AS CMD COPY ENTRYPOINT ENV EXPOSE FROM HEALTHCHECK LABEL ONBUILD RUN SHELL USER ' +
    'VOLUME WORKDIR',
)
add(
  'yaml yml',
  {
    comment: [HASH_COMMENT],
    key: [/^[ \t-]*[\w"'][^\n\u2028\u2029:#]*(?=:(?:\s|$))/],
    string: [DOUBLE, SINGLE],
    number: [/\d[\w.:-]*/],
    word: [SHELL_WORD],
  },
  'false no null off on true yes',
)
add('toml ini properties env conf', INI, 'false true')
add('html xml svg xhtml vue', MARKUP)
add('css scss less', {
  comment: [BLOCK_COMMENT],
  string: [DOUBLE, SINGLE],
  keyword: [/@[\w-]+/, /!\w+/],
  number: [/#[\da-fA-F]{3,8}(?![\w-])/, /-?\.?\d[\d.]*[%a-z]*/],
  key: [/[\w-]+(?=\s{0,9}:\s)/],
  word: [/[\w-]+/],
})
add(
  'sql postgresql mysql sqlite',
  { ...C_LIKE, comment: [/--.*/, BLOCK_COMMENT] },
  'add all alter and as asc begin between by case check column commit constraint create cross ' +
    'database default delete desc distinct drop else end exists false foreign from full grant ' +
    'group having if ilike in index inner insert into is join key left like limit not null ' +
    'offset on or order outer over partition primary references returning right rollback ' +
    'select set table then true union unique update using values view when where with',
  true,
)
add(
  'go golang',
  WITH_BACKTICKS,
  'any bool break byte case chan const continue default defer else error fallthrough false ' +
    'float64 for func go goto if import int int64 interface map nil package range return rune ' +
    'select string struct switch true type var',
)
add(
  'rust rs',
  {
    ...C_LIKE,
    string: [DOUBLE, /'(?:\\[^\n][^'\n]{0,9}|[^'\\\n])'/],
    key: [/'\w+/], // a lifetime
  },
  'Self as async await bool break char const continue crate dyn else enum extern f64 false fn ' +
    'for i32 i64 if impl in let loop match mod move mut pub ref return self static str struct ' +
    'super trait true type u32 u64 u8 unsafe use usize where while',
)
add(
  'java kotlin kt',
  { ...C_LIKE, call: [/@\w+/], string: [TRIPLE_DOUBLE, DOUBLE, SINGLE] },
  'abstract assert boolean break byte case catch char class const continue data default do ' +
    'double else enum extends false final finally float for fun if implements import in ' +
    'instanceof int interface is long new null object override package private protected ' +
    'public record return sealed short static super switch this throw throws true try val var ' +
    'void when while yield',
)
add(
  'c h cpp c++ cc hpp cs csharp',
  { ...C_LIKE, keyword: [/^[ \t]*#[ \t]*\w+/] },
  'async auto await base bool break case catch char class const constexpr continue default ' +
    'delete do double else enum explicit extern false float for foreach friend goto if in ' +
    'inline int internal is long namespace new null nullptr operator override private ' +
    'protected public readonly return short signed sizeof static string struct switch template ' +
    'this throw true try typedef typename union unsigned using var virtual void volatile while',
)
add('diff patch', {
  keyword: [/^(?:@@|diff |index |--- |\+\+\+ ).*/],
  added: [/^[+>].*/],
  removed: [/^[-<].*/],
})
add('md markdown', {
  keyword: [/^#{1,6} .*/],
  comment: [/^>.*/],
  number: [/^[ \t]*(?:[*+-]|\d+[.)])(?=[ \t])/],
  string: [/`[^`\n]*`?/],
  call: [/\[[^[\]\n]*\]\([^()\n]{0,300}\)/],
})

function add(names, patterns, keywords = '', ignoresCase = false) {
  const groups = Object.entries(patterns).map(([kind, alternatives]) => {
    const sources = alternatives.map(({ source }) => source)
    return `(?<${kind}>${sources.join('|')})`
  })
  const pattern = new RegExp(groups.join('|'), 'gmu')
  const language = { pattern, keywords: new Set(keywords.split(' ')), ignoresCase }
  for (const name of names.split(' ')) LANGUAGES.set(name, language)
}

/** Return the parts of code with their kinds, if known; about `limit` parts at most. */
export function partsOf(code, name, limit) {
  const language = LANGUAGES.get(name.toLowerCase())
  const parts = []
  let end = 0
  if (!language || code.length > MAX_LENGTH) return [{ text: code }]
  for (const { 0: text, index, groups } of code.matchAll(language.pattern)) {
    const next = code[index + text.length]
    const kind = kindOf(text, groups, next, language)
    if (!kind) continue
    if (parts.length >= limit) break
    if (index > end) parts.push({ text: code.slice(end, index) })
    parts.push({ text, kind })
    end = index + text.length
  }
  if (end < code.length) parts.push({ text: code.slice(end) })
  return parts
}

function kindOf(text, groups, next, { keywords, ignoresCase }) {
  const kind = Object.keys(groups).find((name) => groups[name] !== undefined)
  if (kind !== 'word' && kind !== 'call') return kind
  if (keywords.has(ignoresCase ? text.toLowerCase() : text)) return 'keyword'
  if (next === '(') return 'call'
  return kind === 'word' ? undefined : kind
}
