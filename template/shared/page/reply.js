// What the agent says in one turn, as it arrives or as it was read.

import { element, showMarkdown } from './markdown.js'

/** What the agent says in one turn: texts, calls of tools, and what was recalled. */
export class Reply {
  constructor(log) {
    this.shown = new Map() // texts and calls of tools, by their ids
    this.changed = new Set()
    this.body = element('div', 'body', element('p', 'waiting', 'Waiting for the reply'))
    this.node = element('article', 'agent', element('h2', 'unseen', 'Agent'), this.body)
    log.append(this.node)
  }

  take(event) {
    const shown = this.shown.get(event.id ?? event.toolCallId)
    if (event.type === 'text-start') {
      this.shown.set(event.id, { text: '', node: this.add(element('div', 'markdown')) })
    } else if (event.type === 'text-delta') {
      shown.text += event.delta
      this.changed.add(shown)
      this.frame ??= requestAnimationFrame(() => this.draw())
    } else if (event.type === 'tool-input-available') {
      const state = element('span', 'state', 'running')
      const summary = element('summary', '', element('code', '', event.toolName), state)
      const node = this.add(element('details', 'tool', summary))
      node.append(...labelled('Input', event.input))
      this.shown.set(event.toolCallId, { node, state })
    } else if (event.type.startsWith('tool-output-')) {
      const isError = event.type === 'tool-output-error'
      shown.node.append(...labelled(isError ? 'Error' : 'Result', event.errorText ?? event.output))
      shown.state.textContent = isError ? 'failed' : 'done'
      shown.node.classList.toggle('wrong', isError)
    } else if (event.type === 'data-recalled') {
      const summary = element('summary', '', `Recalled ${event.data.length} from memory`)
      const texts = element('ul', '', ...event.data.map((text) => element('li', '', text)))
      this.add(element('details', 'recalled', summary, texts))
    } else if (event.type === 'finish') {
      this.metadata = event.messageMetadata
    } else if (event.type === 'error') {
      this.error = event.errorText.split(/: (.*)/s) // its type and its message
    }
  }

  /** Show the parts of a message that was read. */
  showParts(parts, metadata) {
    for (const [index, part] of parts.entries()) {
      if (part.type === 'text') {
        this.take({ type: 'text-start', id: index })
        this.take({ type: 'text-delta', id: index, delta: part.text })
      } else if (part.toolCallId) {
        const toolName = part.toolName ?? part.type.replace('tool-', '')
        this.take({ ...part, type: 'tool-input-available', toolName })
        if (part.state.startsWith('output-')) this.take({ ...part, type: `tool-${part.state}` })
      } else this.take(part)
    }
    this.metadata = metadata
    this.finish()
  }

  add(node) {
    this.body.querySelector('.waiting')?.remove()
    this.body.append(node)
    return node
  }

  draw() {
    cancelAnimationFrame(this.frame)
    this.frame = null
    for (const { node, text } of this.changed) showMarkdown(node, text)
    this.changed.clear()
  }

  /** End the reply; a committed one says so. */
  finish() {
    this.draw()
    this.body.querySelector('.waiting')?.remove()
    if (!this.metadata) return
    const { turn, milliseconds, inputTokens, outputTokens } = this.metadata
    const said = [`committed as turn ${turn}`]
    if (milliseconds >= 1000) said.push(`${(milliseconds / 1000).toFixed(1)} s`)
    else if (milliseconds) said.push(`${milliseconds} ms`)
    if (inputTokens || outputTokens) said.push(`${inputTokens} tokens in, ${outputTokens} out`)
    this.node.append(element('p', 'outcome', said.join(' · ')))
  }
}

function labelled(label, value) {
  const flat = JSON.stringify(value) ?? ''
  const text = flat.length > 80 ? JSON.stringify(value, null, 2) : flat
  const content = element('pre', '', typeof value === 'string' ? value : text)
  // A long one is scrolled by keyboard, too.
  Object.assign(content, { tabIndex: 0, role: 'group', ariaLabel: label })
  return [element('span', 'label', label), content]
}
