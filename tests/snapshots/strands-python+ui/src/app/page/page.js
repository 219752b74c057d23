// The page: the sessions that this browser began, and the turns of the one that is selected.

import { element } from './markdown.js'
import { Reply } from './reply.js'

const PREFIX = 'X-Amzn-Bedrock-AgentCore-Runtime-'
const SESSIONS = `${document.title}: sessions`
const TOKEN = `${document.title}: token`
const find = (id) => document.getElementById(id)
const [transcript, prompt, actor, dialog] = ['transcript', 'prompt', 'actor', 'dialog'].map(find)
const conversations = new Map() // by session id, those that were selected since the page was loaded
let current

/** Why a turn failed: a type of the HTTP contract, `stopped` or `network_error`. */
class Failure extends Error {
  constructor(type, message) {
    super(message)
    this.type = type
  }
}

// The sessions of this browser ----------------------------------------------------------------

/** Return them, the newest first; another tab may have changed them. */
function readSessions() {
  try {
    return JSON.parse(localStorage.getItem(SESSIONS)) ?? []
  } catch {
    return []
  }
}

function saveSession(session, isGone = false) {
  const others = readSessions().filter(({ id }) => id !== session.id)
  const all = isGone ? others : [...others, session].sort((one, two) => two.began - one.began)
  localStorage.setItem(SESSIONS, JSON.stringify(all))
  show()
}

function newItem({ id }) {
  const link = element('a', '', element('span'), ' ', element('small'))
  link.href = `#${id}`
  return element('li', '', link)
}

/** Show what is known of the sessions, and of the turn that may be running. */
function show() {
  const [list, sessions] = [find('sessions'), readSessions()]
  const shown = Array.from(list.children, ({ firstChild }) => firstChild.hash)
  // A link that is replaced while it is clicked or has the focus is lost.
  if (shown.join() !== sessions.map(({ id }) => `#${id}`).join()) {
    const focused = document.activeElement?.hash
    list.replaceChildren(...sessions.map(newItem))
    for (const { firstChild } of list.children) if (firstChild.hash === focused) firstChild.focus()
  }
  for (const [index, session] of sessions.entries()) {
    const link = list.children[index].firstChild
    const turns = session.turns === 1 ? '1 turn' : `${session.turns} turns`
    link.firstChild.textContent = session.title
    link.lastChild.textContent = session.actor ? `${turns}, ${session.actor}` : turns
    link.ariaCurrent = session.id === current.session.id ? 'page' : null
    link.className = conversations.get(session.id)?.stop ? 'running' : ''
  }
  const { session, stop } = current
  find('title').textContent = session.title || 'New session'
  find('send').hidden = Boolean(stop)
  find('stop').hidden = !stop
  actor.value = session.actor
  actor.readOnly = session.turns > 0 || Boolean(stop) // a session belongs to its first actor
  find('end').disabled = !session.title
}

/** Return a new id; crypto.randomUUID is missing on a page that came over HTTP from afar. */
function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16))
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('')
}

function startSession() {
  const id = newId()
  const name = current ? current.session.actor : actor.defaultValue
  const session = { id, began: Date.now(), title: '', actor: name, turns: 0 }
  conversations.set(id, new Conversation(session))
  location.replace(`#${id}`)
}

/** Select the session that the address names; an address from elsewhere cannot bring another. */
function selectSession() {
  const id = location.hash.slice(1)
  const session = readSessions().find((it) => it.id === id)
  if (!conversations.has(id) && !session) return startSession()
  if (!conversations.has(id)) conversations.set(id, new Conversation(session).load())
  current = conversations.get(id)
  transcript.replaceChildren(current.log)
  transcript.scrollTop = transcript.scrollHeight
  toggleSidebar(false)
  show()
  prompt.focus()
}

async function endSession() {
  const { session, stop } = current
  const what = 'End this session? Its turns are deleted on the server.'
  if ((await ask(what, 'End session')) === null) return
  stop?.abort()
  const headers = { [`${PREFIX}Session-Id`]: session.id, Accept: 'application/json' }
  const body = '{"end_session": true}'
  try {
    await call(session, 'invocations', { method: 'POST', headers, body })
  } catch (error) {
    return conversations.get(session.id).note(`Not ended: ${asFailure(error).message}`)
  }
  conversations.delete(session.id)
  saveSession(session, true)
  say('The session was ended.')
  if (current.session === session) startSession()
}

// A conversation --------------------------------------------------------------------------------

class Conversation {
  constructor(session) {
    this.session = session
    this.stop = null // ends the turn that runs
    this.ready = null
    this.log = element('div', 'log')
    this.log.setAttribute('role', 'log')
    new ResizeObserver(() => scrollDown()).observe(this.log)
  }

  /** Read the turns from the server. */
  load() {
    this.ready = this.readTurns().then(
      (messages) => this.show(messages),
      (error) => this.fail(asFailure(error), 'The turns could not be read.', () => this.load()),
    )
    return this
  }

  async readTurns(options) {
    return (await call(this.session, `api/chat?id=${this.session.id}`, options)).json()
  }

  show(messages) {
    this.log.replaceChildren()
    let turn = 0
    for (const { role, parts, metadata } of messages) {
      if (role === 'user') this.addPrompt(parts.map(({ text }) => text).join(''))
      else new Reply(this.log).showParts(parts, metadata)
      turn = metadata?.turn ?? turn
    }
    if (turn < this.session.turns) {
      this.note('The server no longer has this session. Your next message begins it anew.')
    }
    this.save({ turns: turn })
  }

  save(change) {
    saveSession(Object.assign(this.session, change))
  }

  addPrompt(text) {
    this.log.querySelector('.failure button')?.remove() // what follows would have come before it
    const about = element('h2', 'unseen', 'You')
    this.log.append(element('article', 'user', about, element('p', '', text)))
  }

  note(text) {
    this.log.append(element('p', 'notice', text))
    say(text)
  }

  /** Show a failure below what it is about, with one button to try again. */
  fail({ type, message }, consequence, retry) {
    const again = element('button', '', 'Try again')
    const title = type === 'stopped' ? 'Stopped' : 'Failed: '
    const kind = type === 'stopped' ? '' : element('code', '', type)
    const failure = element('div', 'failure', element('strong', '', title, kind))
    if (message) failure.append(element('p', '', message))
    failure.append(element('p', '', consequence), again)
    failure.classList.toggle('stopped', type === 'stopped')
    again.onclick = () => {
      failure.remove()
      prompt.focus()
      retry()
    }
    this.log.append(failure)
    say(`${title}${kind && type}. ${message} ${consequence}`)
  }

  /** Send a prompt as one turn. The id is its idempotency key: a kept turn is never run twice. */
  async takeTurn(message) {
    const { session } = this
    const stop = (this.stop = new AbortController())
    const reply = new Reply(this.log)
    reply.node.ariaBusy = 'true'
    scrollDown(true)
    show()
    try {
      const turn = { id: session.id, messages: [message], trigger: 'submit-message' }
      const options = { method: 'POST', body: JSON.stringify(turn), signal: stop.signal }
      for await (const event of readEvents(await call(session, 'api/chat', options))) {
        reply.take(event)
      }
      if (reply.error) throw new Failure(...reply.error)
      if (!reply.metadata) throw new TypeError('the stream was cut')
      this.commit(reply)
    } catch (error) {
      const failure = stop.signal.aborted ? new Failure('stopped', '') : asFailure(error)
      await this.rollBack(reply, failure, message)
    }
    reply.node.ariaBusy = 'false'
    this.stop = null
    show()
  }

  commit(reply) {
    const { turn } = reply.metadata
    if (turn > this.session.turns + 1) return this.load() // another tab continued the session
    if (turn <= this.session.turns) {
      const what = 'The server had lost this session. It began anew here, without what is above.'
      reply.node.previousSibling.before(element('p', 'notice', what))
    }
    reply.finish()
    this.save({ turns: turn })
    say(`Committed as turn ${turn}.`)
  }

  async rollBack(reply, failure, message) {
    const isLocal = ['stopped', 'network_error'].includes(failure.type)
    let consequence = 'Nothing was kept: this session is unchanged.'
    // Here the page has left before the end of the turn, so it asks what became of it.
    const soon = { signal: AbortSignal.timeout(5000) }
    const messages = isLocal ? await this.readTurns(soon).catch(() => null) : []
    if (messages?.at(-1)?.metadata.turn > this.session.turns) {
      return this.show(messages)
    }
    if (!messages) consequence = 'Whether this turn was kept, trying again will tell: it runs once.'
    reply.finish()
    reply.node.classList.add('failed')
    this.fail(failure, consequence, () => {
      reply.node.remove()
      this.takeTurn(message)
    })
  }
}

// The server ------------------------------------------------------------------------------------

/** Call the server as the session's actor and return its answer; throw Failure for an error. */
async function call(session, path, options = {}) {
  const token = sessionStorage.getItem(TOKEN)
  const headers = { 'Content-Type': 'application/json', ...options.headers }
  if (token) headers.Authorization = `Bearer ${token}`
  if (session.actor) headers[`${PREFIX}Custom-Actor-Id`] = session.actor
  const response = await fetch(path, { ...options, headers })
  if (response.ok) return response
  if (response.status === 401 && (await askToken(token))) return call(session, path, options)
  const { error } = await response.json().catch(() => ({}))
  throw new Failure(error?.type ?? `http_${response.status}`, error?.message ?? '')
}

/** Ask for the token, unless it was given meanwhile; return whether there is one to try. */
async function askToken(refused) {
  if (dialog.open) await new Promise((resolve) => dialog.addEventListener('close', resolve))
  if (sessionStorage.getItem(TOKEN) !== refused) return true
  const what = refused ? 'The server does not accept this token.' : 'This server asks for a token.'
  const token = (await ask(what, 'Continue', 'API_TOKEN'))?.trim()
  if (token) sessionStorage.setItem(TOKEN, token)
  return Boolean(token)
}

async function* readEvents(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader()
  let rest = ''
  for (;;) {
    const { done, value } = await reader.read()
    if (done) return
    const events = (rest + value).split('\n\n')
    rest = events.pop()
    for (const event of events) {
      const data = event.replace(/^data: /, '')
      if (data !== event && data !== '[DONE]') yield JSON.parse(data)
    }
  }
}

function asFailure(error) {
  const what = 'The server does not answer, or the connection was lost.'
  return error instanceof Failure ? error : new Failure('network_error', what)
}

// What is around --------------------------------------------------------------------------------

/** Ask for a confirmation, or for a text where there is a label; null is no. */
function ask(question, confirm, label = '') {
  find('question').textContent = question
  find('confirm').textContent = confirm
  find('field').hidden = !label
  find('field').firstChild.textContent = label
  find('answer').value = dialog.returnValue = ''
  dialog.showModal()
  return new Promise((resolve) => {
    const close = () => resolve(dialog.returnValue ? find('answer').value : null)
    dialog.addEventListener('close', close, { once: true })
  })
}

/** Tell those who do not see the page. */
function say(text) {
  find('status').textContent = text
}

/** Keep the end in sight, unless the reader has scrolled up. */
let isAtEnd = true
function scrollDown(always = false) {
  if (always) isAtEnd = true
  if (isAtEnd) transcript.scrollTop = transcript.scrollHeight
}

function toggleSidebar(isOpen) {
  find('sidebar').classList.toggle('open', isOpen)
  find('menu').ariaExpanded = String(isOpen)
}

// What the reader does ---------------------------------------------------------------------------

async function send() {
  const conversation = current
  const text = prompt.value
  if (!text.trim() || conversation.stop || !actor.reportValidity()) return
  await conversation.ready
  if (conversation.stop) return
  prompt.value = ''
  const { session } = conversation
  const title = session.title || text.trim().replace(/\s+/g, ' ').slice(0, 80)
  conversation.addPrompt(text)
  conversation.save({ title })
  conversation.takeTurn({ id: newId(), role: 'user', parts: [{ type: 'text', text }] })
}

find('composer').onsubmit = (event) => {
  event.preventDefault()
  send()
}
prompt.onkeydown = (event) => {
  if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return
  event.preventDefault()
  send()
}
dialog.onsubmit = (event) => {
  event.preventDefault()
  dialog.close('confirmed')
}
actor.oninput = () => {
  current.session.actor = actor.value.trim()
}
transcript.onscroll = () => {
  isAtEnd = transcript.scrollHeight - transcript.scrollTop - transcript.clientHeight < 40
}
find('cancel').onclick = () => dialog.close()
find('stop').onclick = () => current.stop?.abort()
find('new').onclick = startSession
find('end').onclick = endSession
find('menu').onclick = () => toggleSidebar(find('menu').ariaExpanded === 'false')
window.onhashchange = selectSession
window.onstorage = show
selectSession()
