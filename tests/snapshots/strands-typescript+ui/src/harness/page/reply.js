// The reply of a turn, streamed or from the history.

import { fileList } from './attachments.js'
import { copyButton, element, showMarkdown } from './markdown.js'

const MARK = Array.from(crypto.getRandomValues(new Uint32Array(4))).join('-') // secret
const MARKED = new RegExp(`"${MARK} ([^"]*)"`, 'g')
const TOKEN = /"[^"\\]*(?:\\.[^"\\]*)*"|-?\d[\d.eE+-]*/g // of JSON: a string or a number
const STRING = /("[^"\\]*(?:\\.[^"\\]*)*")/
// Characters that are invisible or reorder others; Braille has a blank that is a symbol.
const INVISIBLE = /(?![ \n])[\p{C}\p{Z}\p{Default_Ignorable_Code_Point}\u2800]/gu

/** Parse JSON; keep the digits of numbers that JavaScript would change, for `write`. */
export function parse(json) {
  const keep = (token) => {
    const isSame = token.startsWith('"') || String(Number(token)) === token
    return isSame ? token : `"${MARK} ${token}"`
  }
  return JSON.parse(json.replace(TOKEN, keep))
}

/** Return the JSON of a parsed value, with the original digits of its numbers. */
function write(value, indent) {
  return JSON.stringify(value, null, indent)?.replace(MARKED, '$1') ?? ''
}

/** Escape characters that are invisible or reorder other characters. */
function visible(text) {
  const escape = (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`
  return text.replace(INVISIBLE, (character) => character.split('').map(escape).join(''))
}

/** The reply of a turn: texts, reasoning, tool calls and recalled memories. */
export class Reply {
  constructor(log) {
    this.answers = new Map() // the user's answers to pending calls, by call id
    this.rounds = 0 // how often answers resumed the reply
    this.items = new Map() // texts, reasoning and tool calls, by id
    this.changed = new Set()
    this.recalled = []
    this.took = {} // milliseconds by tool call id
    this.drawing = 0 // milliseconds of the last drawing
    this.body = element('div', 'body', element('p', 'waiting', 'Waiting for the reply'))
    this.node = element('article', 'agent', element('h2', 'unseen', 'Agent'), this.body)
    log.append(this.node)
  }

  take(event) {
    const id = event.toolCallId ?? `${this.rounds} ${event.id}`
    const item = this.items.get(id)
    const isCall = event.type === 'tool-input-available'
    if (event.toolCallId && !item && !isCall) return // its call was before the approval
    if (event.type === 'text-start') {
      this.items.set(id, { text: '', node: this.add(element('div', 'markdown')) })
    } else if (event.type === 'text-delta') {
      item.text += event.delta
      this.changed.add(item)
      // Draw long text less often, so that the page stays responsive.
      this.timer ??= setTimeout(() => this.draw(), 16 + 4 * this.drawing)
    } else if (event.type === 'reasoning-start') {
      const summary = element('summary', '', 'Thinking')
      const node = element('p')
      this.add(element('details', 'reasoning', summary, node))
      this.items.set(id, { node, summary, startedAt: performance.now() })
    } else if (event.type === 'reasoning-delta') {
      item.node.append(event.delta)
    } else if (event.type === 'reasoning-end') {
      endReasoning(item)
    } else if (isCall) {
      const state = element('span', 'state', 'running')
      const toolName = visible(event.toolName)
      const summary = element('summary', '', element('code', '', toolName), state)
      const node = this.add(element('details', 'tool', summary))
      const { input } = event
      // The model sent text instead of arguments.
      node.append(...labelled('Input', typeof input === 'string' ? visible(input) : input))
      this.items.set(id, { node, state, toolName, startedAt: performance.now() })
    } else if (event.type === 'tool-approval-request') {
      this.answers.set(id, null)
      item.approvalId = event.approvalId ?? event.approval.id
      item.state.textContent = 'waits for your approval'
    } else if (event.type === 'tool-output-denied') {
      item.state.textContent = 'denied'
    } else if (event.type.startsWith('tool-output-')) {
      const isError = event.type === 'tool-output-error'
      item.node.append(...labelled(isError ? 'Error' : 'Result', event.errorText ?? event.output))
      const isStored = Boolean(this.tabData)
      const time = isStored ? this.took[event.toolCallId] : performance.now() - item.startedAt
      if (time) this.took[event.toolCallId] = time
      const state = isError ? 'failed' : 'done'
      item.state.textContent = time ? `${state} · ${duration(time)}` : state
      item.node.classList.toggle('wrong', isError)
    } else if (event.type === 'data-recalled') {
      this.recalled = event.data
      const summary = element('summary', '', `Recalled ${event.data.length} from memory`)
      const texts = element('ul', '', ...event.data.map((text) => element('li', '', text)))
      this.add(element('details', 'recalled', summary, texts))
    } else if (event.type.startsWith('data-')) {
      this.showProgress(`${event.type.slice(5)}: ${visible(JSON.stringify(event.data))}`)
    } else if (event.type === 'source-url' && /^https?:/.test(event.url)) {
      const link = element('a', '', visible(event.title || event.url))
      Object.assign(link, { href: event.url, rel: 'noreferrer', target: '_blank' })
      this.add(element('p', 'source', link))
    } else if (event.type === 'file') {
      this.add(fileList([event])) // of a tool
    } else if (event.type === 'finish') {
      this.metadata = event.messageMetadata
    } else if (event.type === 'abort') {
      this.error = ['stopped', ''] // in this or another tab
    } else if (event.type === 'error') {
      this.error = event.errorText.split(/: (.*)/s) // type and message
    }
  }

  /** Show a progress line under the running tool, and replace its previous line. */
  showProgress(text) {
    const isRunning = ({ state }) => state?.textContent === 'running'
    const tool = [...this.items.values()].reverse().find(isRunning)
    if (!tool) this.add(element('p', 'progress', text))
    else if (tool.line) tool.line.textContent = text
    else tool.node.after((tool.line = element('p', 'progress', text)))
  }

  /** Show the parts of a message from the history, with the data of this tab. */
  showParts(parts, metadata, tabData) {
    this.tabData = tabData
    this.took = tabData.took ?? {}
    if (Array.isArray(tabData.recalled) && tabData.recalled.length > 0) {
      this.take({ type: 'data-recalled', data: tabData.recalled })
    }
    for (const [index, part] of parts.entries()) {
      if (part.type === 'text') {
        this.take({ type: 'text-start', id: index })
        this.take({ type: 'text-delta', id: index, delta: part.text })
      } else if (part.toolCallId) {
        const toolName = part.toolName ?? part.type.replace('tool-', '')
        this.take({ ...part, type: 'tool-input-available', toolName })
        const { state } = part
        if (state === 'approval-requested') this.take({ ...part, type: 'tool-approval-request' })
        if (state.startsWith('output-')) this.take({ ...part, type: `tool-${state}` })
      } else this.take(part)
    }
    this.metadata = { ...tabData, ...metadata }
    this.finish()
  }

  /** Ask for the approval of a call; call `onAnswered` after the last answer. */
  ask(id, { node, state, toolName, approvalId }) {
    const [approve, deny] = [element('button', '', 'Approve'), element('button', '', 'Deny')]
    const reason = element('input')
    const form = element('form', 'approval', approve, deny, reason)
    Object.assign(approve, { type: 'button', ariaLabel: `Approve ${toolName}` })
    Object.assign(deny, { ariaLabel: `Deny ${toolName}` })
    Object.assign(reason, { placeholder: 'Why not (optional)', ariaLabel: 'Reason for the denial' })
    node.open = true
    node.append(form)
    const answer = (approved) => {
      const text = (!approved && reason.value.trim()) || undefined
      this.answers.set(id, { id: approvalId, approved, reason: text })
      state.textContent = approved ? 'approved' : 'denied'
      form.remove()
      const isLast = [...this.answers.values()].every(Boolean)
      // The form with the focused button was removed.
      const next = isLast ? node.firstChild : this.body.querySelector('.approval button')
      next.focus()
      if (isLast) this.onAnswered([...this.answers.values()])
    }
    approve.onclick = () => answer(true)
    form.onsubmit = (event) => {
      event.preventDefault()
      answer(false)
    }
  }

  /** Resume the reply after the answers. */
  resume() {
    for (const id of this.answers.keys()) this.items.get(id).startedAt = performance.now()
    this.tabData = null // later parts are new, even in a reloaded tab
    this.answers.clear()
    this.metadata = null
    this.rounds++
    for (const node of this.node.querySelectorAll('.pending, .approval')) node.remove()
    this.add(element('p', 'waiting', 'Waiting for the reply'))
  }

  add(node) {
    this.body.querySelector('.waiting')?.remove()
    this.body.append(node)
    return node
  }

  draw() {
    clearTimeout(this.timer)
    this.timer = null
    const startedAt = performance.now()
    for (const { node, text } of this.changed) showMarkdown(node, text)
    this.changed.clear()
    this.drawing = performance.now() - startedAt
  }

  /** End the reply; mark it if the turn is committed. */
  finish() {
    this.draw()
    // A turn that failed or was stopped did not end its reasoning.
    for (const item of this.items.values()) if (item.summary) endReasoning(item)
    this.body.querySelector('.waiting')?.remove()
    if (!this.metadata) return
    if (this.answers.size > 0) {
      for (const id of this.answers.keys()) this.ask(id, this.items.get(id))
      const note = 'This turn waits for your approval. Another message drops it.'
      this.node.append(element('p', 'note pending', note))
      return
    }
    const { turn, milliseconds, inputTokens, cachedTokens, outputTokens } = this.metadata
    const outcome = [`committed as turn ${turn}`]
    if (milliseconds) outcome.push(duration(milliseconds))
    const cached = cachedTokens ? ` (${cachedTokens} cached)` : ''
    const tokens = `${inputTokens} tokens in${cached}, ${outputTokens} out`
    if (inputTokens || outputTokens) outcome.push(tokens)
    const copy = copyButton('Copy this reply', () => this.texts.join('\n\n'))
    this.node.append(element('p', 'outcome', outcome.join(' · '), ' ', copy))
  }

  get texts() {
    return [...this.items.values()].flatMap(({ text }) => text ?? [])
  }

  /** The reply's data in this tab. */
  get facts() {
    const { recalled, took } = this
    const { milliseconds, inputTokens, cachedTokens, outputTokens, cut } = this.metadata
    return { milliseconds, inputTokens, cachedTokens, outputTokens, recalled, took, cut }
  }
}

/** Show the duration of the reasoning. */
function endReasoning(item) {
  item.summary.textContent = `Thought for ${duration(performance.now() - item.startedAt)}`
  item.summary = null
}

function duration(milliseconds) {
  if (milliseconds >= 1000) return `${(milliseconds / 1000).toFixed(1)} s`
  return `${Math.ceil(milliseconds)} ms`
}

/** Return the nodes of a JSON value. Isolate strings, because Arabic reorders its neighbors. */
function nodesOf(value) {
  const flat = write(value)
  const text = visible(flat.length > 80 ? write(value, 2) : flat)
  return text.split(STRING).map((part, index) => (index % 2 ? element('bdi', '', part) : part))
}

function labelled(label, value) {
  const content = element('pre', '', ...(typeof value === 'string' ? [value] : nodesOf(value)))
  // Long content must also scroll by keyboard.
  Object.assign(content, { tabIndex: 0, role: 'group', ariaLabel: label })
  return [element('span', 'label', label), content]
}
