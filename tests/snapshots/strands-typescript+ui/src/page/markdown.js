// Markdown as DOM nodes: every text becomes a text node, so nothing in it can run.

const FENCE = /^\s{0,3}(```+|~~~+)\s*([\w+#.-]*)[^`]*$/
const HEADING = /^(#{1,6})\s+(.*?)\s*#*$/
const RULE = /^\s{0,3}([-*_])(\s*\1){2,}\s*$/
const QUOTE = /^\s{0,3}>\s?/
const ITEM = /^\s*(?:[-*+]|(\d{1,9})[.)])\s+/
const DIVIDER = /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/
const INTERRUPT = /^\s{0,3}(```|~~~|#{1,6}\s|>|[-*+]\s|1[.)]\s)/

// In this order: an escape, code, strong, emphasis, a link, a bare address. Lengths are limited:
// what a hostile text can cost stays small.
const INLINE = new RegExp(
  [
    '\\\\([\\\\`*_{}\\[\\]()#+.!|>~-])',
    '(?<!`)(`+)(?!`)(.{1,4000}?)(?<!`)\\2(?!`)',
    '(\\*\\*|(?<!\\w)__)(?=\\S)(.{0,1000}?\\S)\\4(?:(?<=\\*)|(?!\\w))',
    '(?<![\\w*_])([*_])(?=[^\\s*_])(.{1,1000}?)(?<=[^\\s*_])\\6(?![\\w*_])',
    '!?\\[([^\\[\\]]{1,500})\\]\\((\\S{1,2000}?)(?:\\s+"[^"]{0,200}")?\\)',
    '(https?://[^\\s<>()`]{0,2000}[^\\s<>()`.,:;!?"\'*_])',
  ].join('|'),
  'gs',
)

/** Create an element of this class with these children; strings become text. */
export function element(tag, className = '', ...children) {
  const node = document.createElement(tag)
  if (className) node.className = className
  node.append(...children)
  return node
}

/** Show a Markdown text in `container`; blocks that did not change stay as they are. */
export function showMarkdown(container, text, depth = 0) {
  let at = 0
  for (const [kind, lines] of readBlocks(text.split(/\r?\n/))) {
    const [source, shown] = [lines.join('\n'), container.children[at++]]
    if (shown?.source === source) continue
    const build = BUILD[depth < 9 ? kind : 'text']
    const block = Object.assign(build(lines, depth + 1), { source })
    if (shown) shown.replaceWith(block)
    else container.append(block)
  }
  while (container.children.length > at) container.lastChild.remove()
}

/** Yield the kind and the lines of each block. */
function* readBlocks(lines) {
  for (let at = 0; at < lines.length;) {
    const [start, line] = [at, lines[at++]]
    const takeWhile = (test) => {
      while (at < lines.length && test(lines[at], lines[at + 1] ?? '')) at++
    }
    const [, fence] = FENCE.exec(line) ?? []
    let kind = 'text'
    if (!line.trim()) continue
    if (fence) {
      kind = 'code'
      takeWhile((it) => !it.trim().startsWith(fence))
      at++ // the closing fence, which is not there yet while the text arrives
    } else if (HEADING.test(line)) kind = 'heading'
    else if (RULE.test(line)) kind = 'rule'
    else if (QUOTE.test(line)) {
      kind = 'quote'
      takeWhile((it) => QUOTE.test(it))
    } else if (ITEM.test(line)) {
      kind = 'list'
      const isInside = (it) => ITEM.test(it) || /^\s+\S/.test(it)
      const isLazy = (it) => lines[at - 1].trim() && !INTERRUPT.test(it)
      takeWhile((it, next) => (it.trim() ? isInside(it) || isLazy(it) : isInside(next)))
    } else if (line.includes('|') && DIVIDER.test(lines[at] ?? '')) {
      kind = 'table'
      takeWhile((it) => it.includes('|'))
    } else takeWhile((it) => it.trim() && !INTERRUPT.test(it))
    yield [kind, lines.slice(start, at)]
  }
}

const BUILD = {
  text: (lines) => element('p', '', ...inline(lines.join('\n'))),
  rule: () => element('hr'),
  heading([line]) {
    const [, marks, text] = HEADING.exec(line)
    return element(`h${Math.min(marks.length + 2, 6)}`, '', ...inline(text))
  },
  code([first, ...lines]) {
    const [, fence, language] = FENCE.exec(first)
    if (lines.at(-1)?.trim().startsWith(fence)) lines.pop()
    const code = element('pre', '', element('code', '', lines.join('\n')))
    // Wide code is scrolled by keyboard, too.
    return Object.assign(code, { tabIndex: 0, role: 'group', ariaLabel: `Code ${language}`.trim() })
  },
  quote(lines, depth) {
    const quote = element('blockquote')
    showMarkdown(quote, lines.map((it) => it.replace(QUOTE, '')).join('\n'), depth)
    return quote
  },
  list(lines, depth) {
    const number = ITEM.exec(lines[0])[1]
    const list = element(number ? 'ol' : 'ul')
    if (number) list.start = Number(number)
    const indent = lines[0].search(/\S/)
    const items = []
    for (const line of lines) {
      const isItem = ITEM.test(line) && line.search(/\S/) <= indent + 1
      if (isItem) items.push([line.replace(ITEM, '')])
      else items.at(-1).push(line.replace(/^\s{1,4}/, ''))
    }
    for (const item of items) {
      const node = element('li')
      showMarkdown(node, item.join('\n'), depth)
      const only = node.firstChild
      if (only?.tagName === 'P') only.replaceWith(...only.childNodes)
      list.append(node)
    }
    return list
  },
  table([head, , ...rows]) {
    const cells = (line) =>
      line
        .trim()
        .replace(/^\||\|$/g, '')
        .split(/(?<!\\)\|/)
    const row = (tag) => (line) =>
      element('tr', '', ...cells(line).map((it) => element(tag, '', ...inline(it.trim()))))
    const body = element('tbody', '', ...rows.map(row('td')))
    return element('div', 'wide', element('table', '', element('thead', '', row('th')(head)), body))
  },
}

/** Return the nodes of a text with emphasis, code and links. */
function inline(text) {
  const nodes = []
  let end = 0
  for (const found of text.matchAll(INLINE)) {
    const [whole, escaped, , code, , strong, , emphasis, label, target, address] = found
    nodes.push(text.slice(end, found.index))
    end = found.index + whole.length
    if (escaped) nodes.push(escaped)
    else if (code) nodes.push(element('code', '', code.replace(/^ (.*) $/s, '$1')))
    else if (strong) nodes.push(element('strong', '', ...inline(strong)))
    else if (emphasis) nodes.push(element('em', '', ...inline(emphasis)))
    else if (address) nodes.push(link(address, address))
    else if (/^https?:\/\//i.test(target)) nodes.push(link(target, label))
    else nodes.push(whole) // another kind of address could run something
  }
  return [...nodes, text.slice(end)]
}

function link(address, label) {
  const node = element('a', '', label)
  return Object.assign(node, { href: address, title: address, target: '_blank', rel: 'noopener' })
}
