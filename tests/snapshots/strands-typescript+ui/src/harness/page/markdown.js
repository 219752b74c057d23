// Markdown as DOM nodes: every text becomes a text node, so nothing in it can run.

import { ENTITIES } from './entities.js'
import { partsOf } from './highlight.js'
import { Lexer, Marked } from './marked.min.js'

const DEPTH = 9 // of lists and quotes
// Parsing emphasis and links costs up to the length times the punctuation.
const COST = 3e6
const COST_OF_ALL = 2e7
const PARTS = 10_000 // colored parts of code on the page: each part is an element
const SAFE = /^(https?:\/\/|mailto:)/i // other schemes could run code
const ENTITY = /&(?:#(\d{1,7})|#x([\da-f]{1,6})|([a-z]\w{1,7}));/gi
const BREAK = /^<br\s*\/?>$/i
// Limit the length, because text with many opening signs would take too long.
const BLOCK_FORMULAS = [
  /^\$\$[^]{1,2000}?\$\$[ \t]*(?:\n|$)/,
  /^\\\[[^]{1,2000}?\\\][ \t]*(?:\n|$)/,
]
const FORMULAS = [
  /^\$\$[^]{1,2000}?\$\$/,
  /^\\\[[^]{1,2000}?\\\]/,
  /^\\\([^]{1,2000}?\\\)/,
  // Not the prices in "from $5 to $6" and "$5-$6".
  /^\$(?![\s$])(?:\\.|[^$\n\\]){0,200}?[^\s$\\]\$(?![\d$])/,
]
const CONTAINERS = ['blockquote', 'list_item']
const TAGS = {
  blockquote: 'blockquote',
  checkbox: 'span',
  code: 'figure',
  hr: 'hr',
  list_item: 'li',
  table: 'div',
  text: 'span',
}
// Show formulas unchanged: Markdown would interpret their signs.
const { defaults: OPTIONS } = new Marked({
  extensions: [
    {
      name: 'formula',
      level: 'block',
      tokenizer: (source) => formula(source, BLOCK_FORMULAS),
    },
    {
      name: 'inlineFormula',
      level: 'inline',
      start: (source) => source.match(/\$|\\[([]/)?.index,
      tokenizer: (source) => formula(source, FORMULAS),
    },
  ],
})

/** Create an element with a class and children; strings become text nodes. */
export function element(tag, className = '', ...children) {
  const node = document.createElement(tag)
  if (className) node.className = className
  node.append(...children)
  return node
}

/** Return a button that copies text. */
export function copyButton(label, textOf) {
  const button = element('button', 'copy', 'Copy')
  button.onclick = async () => {
    const isCopied = await copy(textOf())
    button.textContent = isCopied ? 'Copied' : 'Not copied'
    setTimeout(() => (button.textContent = 'Copy'), 2000)
  }
  return Object.assign(button, { type: 'button', title: label })
}

/** Copy text; return whether it worked. */
async function copy(text) {
  // Browsers have no clipboard for pages over plain HTTP from another machine.
  if (!navigator.clipboard) return copyFromField(text)
  return navigator.clipboard.writeText(text).then(
    () => true,
    () => false,
  )
}

function copyFromField(text) {
  const focused = document.activeElement
  const field = Object.assign(element('textarea', 'unseen'), { value: text, readOnly: true })
  document.body.append(field)
  field.select()
  const isCopied = document.execCommand('copy')
  field.remove()
  focused.focus()
  return isCopied
}

/** Show Markdown in `container`; keep unchanged blocks. */
export function showMarkdown(container, text) {
  try {
    new Walker(container, text.replace(/\r\n?/g, '\n'))
  } catch {
    container.replaceChildren(element('p', '', text)) // nested too deeply for the parser
  }
}

class Walker {
  constructor(container, text) {
    this.lexer = new Lexer(OPTIONS)
    this.cost = 0
    this.parts = PARTS
    const blocks = this.lexer.blockTokens(text, this.lexer.tokens)
    // Parse the texts in a block only when it is drawn: most blocks are unchanged.
    this.unread = new Map(this.lexer.inlineQueue.map(({ src, tokens }) => [tokens, src]))
    const links = JSON.stringify(this.lexer.tokens.links) // definitions can follow their use
    if (container.links !== links) container.replaceChildren()
    container.links = links
    this.showBlocks(container, blocks, 0)
  }

  showBlocks(container, tokens, depth) {
    const blocks = tokens.filter(({ type }) => type !== 'space' && type !== 'def')
    // Read and append once: browsers count children again after each change.
    const [before, more] = [[...container.children], document.createDocumentFragment()]
    for (const [index, { ...token }] of blocks.entries()) {
      if (depth > DEPTH) token.type = 'html'
      const [tag, shown] = [tagOf(token), before[index]]
      const source = `${token.loose} ${token.raw}`
      if (shown?.source === source && shown.localName === tag) continue
      const block = shown?.localName === tag ? shown : element(tag)
      if (!shown) more.append(block)
      else if (shown !== block) shown.replaceWith(block)
      block.source = source
      this.fill(block, token, depth + 1)
    }
    container.append(more)
    for (const block of before.slice(blocks.length)) block.remove()
  }

  fill(block, token, depth) {
    const { type, items, tokens, ordered, start } = token
    if (type === 'list' && ordered) block.start = start
    if (items ?? CONTAINERS.includes(type)) this.showBlocks(block, items ?? tokens, depth)
    else if (type === 'code') this.showCode(block, token)
    else if (type === 'table') this.showTable(block, token)
    else if (type !== 'hr') update(block, this.nodesOf(token))
    // The markers of a list, and the line of a quote, are on the side where its text begins. The
    // browser looks for it after each change, so that a long list is filled before.
    if (type === 'list' || type === 'blockquote') block.dir = 'auto'
  }

  showTable(block, { header, rows }) {
    const cell = (tag) => (token) => {
      const node = element(tag, '', ...this.nodesOf(token))
      node.style.textAlign = token.align ?? ''
      return node
    }
    const row = (tag, cells) => element('tr', '', ...cells.map(cell(tag)))
    const body = element('tbody', '', ...rows.map((cells) => row('td', cells)))
    block.className = 'wide'
    update(block, [element('table', '', element('thead', '', row('th', header)), body)])
  }

  /** Show code. Append new parts, so that users can scroll and select the code meanwhile. */
  showCode(block, { lang, raw, text }) {
    // Wide code must also scroll by keyboard.
    const language = lang?.match(/\S*/)[0] ?? ''
    if (!block.firstChild) {
      const plain = document.createTextNode('')
      const code = element('pre', '', element('code', '', plain))
      block.append(
        element('figcaption'),
        Object.assign(code, { tabIndex: 0, role: 'group', plain }),
        copyButton('Copy this code', () => plain.data),
      )
    }
    const [caption, code] = block.children
    const { plain } = Object.assign(code, { ariaLabel: `Code ${language}`.trim() })
    caption.textContent = language
    const complete = isClosed(raw) ? `${language} ${text}` : ''
    if (complete && code.complete === complete) return
    if (code.complete) code.firstChild.replaceChildren(plain)
    if (text.startsWith(plain.data)) plain.appendData(text.slice(plain.data.length))
    else plain.data = text
    if (complete) this.color(code.firstChild, text, language)
    code.complete = complete
  }

  /** Color complete code only: coloring at each change would take quadratic time. */
  color(code, text, language) {
    const parts = partsOf(text, language, this.parts)
    if (!parts.some(({ kind }) => kind)) return
    this.parts -= parts.length
    const nodeOf = (part) => (part.kind ? element('span', part.kind, part.text) : part.text)
    code.replaceChildren(...parts.map(nodeOf))
  }

  /** Return the nodes of an inline token, or of a whole block. */
  nodesOf(token, isInLink = false) {
    const { type, text, raw, href, checked } = token
    if (type === 'html') return [BREAK.test(raw.trim()) ? element('br') : raw.trimEnd()]
    if (type === 'formula') return [raw.trimEnd()]
    if (type === 'escape') return [text]
    if (type === 'codespan') return [element('code', '', text)]
    if (type === 'br') return [element('br')]
    if (type === 'checkbox') return [checked ? '☑ ' : '☐ ']
    if (href && !SAFE.test(href)) return [raw]
    const isLinked = isInLink || Boolean(href)
    const read = this.read(token)
    const nodes = read?.flatMap((child) => this.nodesOf(child, isLinked)) ?? [decode(text)]
    if (type === 'image') nodes.unshift(text ? 'Image: ' : 'Image')
    if (href && !isInLink) return [link(decode(href), nodes)]
    return ['strong', 'em', 'del'].includes(type) ? [element(type, '', ...nodes)] : nodes
  }

  /** Return the tokens inside a token; nothing if it is flat or too slow to parse. */
  read({ tokens }) {
    const source = this.unread.get(tokens)
    if (source === undefined) return tokens
    const cost = source.length * (source.match(/[!-/:-@[-`{-~]/g)?.length ?? 0)
    this.cost += cost
    if (cost > COST || this.cost > COST_OF_ALL) return undefined
    this.unread.delete(tokens)
    return this.lexer.inlineTokens(source, tokens)
  }
}

/** Show nodes in `parent`. Keep unchanged nodes, so that a selection stays. */
function update(parent, nodes) {
  if (!parent.firstChild) {
    parent.append(...nodes)
    return parent.normalize()
  }
  const wanted = element('div', '', ...nodes)
  wanted.normalize()
  const before = [...parent.childNodes]
  const after = [...wanted.childNodes]
  for (const [index, node] of after.entries()) {
    const shown = before[index]
    if (!shown) parent.append(node)
    else if (shown.isEqualNode(node)) continue
    else if (shown.cloneNode(false).isEqualNode(node.cloneNode(false))) {
      update(shown, node.childNodes)
    } else if (shown.nodeType === Node.TEXT_NODE && node.data?.startsWith(shown.data)) {
      shown.appendData(node.data.slice(shown.data.length))
    } else shown.replaceWith(node)
  }
  for (const node of before.slice(after.length)) node.remove()
}

/** Return whether a code block ends with a fence. */
function isClosed(raw) {
  const fence = /^ {0,3}(`{3,}|~{3,})/.exec(raw)?.[1]
  const last = /\n {0,3}([`~]+)\s*$/.exec(raw.slice(-200))?.[1]
  return Boolean(fence && last?.startsWith(fence))
}

/** Return the token of the formula at the start of text, or undefined. */
function formula(source, forms) {
  const match = forms.map((form) => form.exec(source)).find(Boolean)
  return match && { type: 'formula', raw: match[0] }
}

function tagOf({ type, depth, ordered }) {
  if (type === 'heading') return `h${Math.min(depth + 2, 6)}`
  return type === 'list' ? (ordered ? 'ol' : 'ul') : (TAGS[type] ?? 'p')
}

function link(address, nodes) {
  const node = element('a', '', ...nodes)
  return Object.assign(node, { href: address, title: address, target: '_blank', rel: 'noopener' })
}

function decode(text) {
  return text.replace(ENTITY, (whole, decimal, hex, name) => {
    if (name) return ENTITIES.get(name) ?? whole
    const code = Number(decimal ?? `0x${hex}`)
    return code > 0 && code <= 0x10ffff ? String.fromCodePoint(code) : '\ufffd'
  })
}
