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

const INTERRUPTED = 'The page was loaded again before this turn had ended.'
const UNCHANGED = 'Nothing was kept: this session is unchanged.'
const GENTLE = { stopped: 'Stopped', interrupted: 'Interrupted' }

/** Why a turn failed: a type of the HTTP contract, `stopped` or `network_error`. */
class Failure extends Error {
  constructor(type, message) {
    super(message)
    this.type = type
  }
}

// Storage of the browser: the sessions for all tabs, and facts that only one tab has -----------

const unkept = new Map() // values that the browser refused to store

function read(storage, key) {
  try {
    return JSON.parse(unkept.get(key) ?? window[storage].getItem(key))
  } catch {
    return null
  }
}

function write(storage, key, value) {
  const text = JSON.stringify(value)
  try {
    window[storage].setItem(key, text)
    unkept.delete(key)
  } catch {
    unkept.set(key, text)
  }
}

// The sessions of this browser ----------------------------------------------------------------

/** Return them, the newest first; another tab may have changed them. */
function readSessions() {
  const all = read('localStorage', SESSIONS)
  return Array.isArray(all) ? all.filter(isSession) : []
}

function isSession(value) {
  const isText = ['id', 'title', 'actor'].every((name) => typeof value?.[name] === 'string')
  const isNumber = ['began', 'turns'].every((name) => Number.isFinite(value?.[name]))
  return isText && isNumber && /^[A-Za-z0-9][\w-]{0,255}$/.test(value.id)
}

function saveSession(session, isGone = false) {
  const others = readSessions().filter(({ id }) => id !== session.id)
  const all = isGone ? others : [...others, session].sort((a, b) => b.began - a.began)
  write('localStorage', SESSIONS, all)
  show()
}

function newItem({ id }) {
  const link = element('a', '', element('span'), ' ', element('small'))
  link.href = `#${id}`
  return element('li', '', link)
}

/** Show the sessions, and whether a turn is running. */
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
  // A hashchange event comes later: a prompt sent before it would go to the previous session.
  history.replaceState(null, '', `#${id}`)
  selectSession()
}

/** Select the session that the address names; an address from elsewhere cannot bring another. */
function selectSession() {
  const id = location.hash.slice(1)
  const session = readSessions().find((saved) => saved.id === id)
  if (!conversations.has(id) && !session) return startSession()
  if (!conversations.has(id)) conversations.set(id, new Conversation(session).load())
  current = conversations.get(id)
  transcript.replaceChildren(current.log)
  scrollDown(true)
  toggleSidebar(false)
  show()
  prompt.focus()
}

/** Follow what another tab did. */
function follow() {
  const sessions = readSessions()
  for (const [id, conversation] of conversations) {
    const session = sessions.find((saved) => saved.id === id)
    const { title, turns } = conversation.session
    if (conversation.stop || (session ? session.turns === turns : !title)) continue
    if (session && conversation === current) {
      Object.assign(conversation.session, session)
      conversation.load()
    } else conversations.delete(id)
  }
  if (conversations.has(current.session.id)) return show()
  startSession()
  say('The session was ended in another tab.')
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
  conversations.get(session.id).remember(null)
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
    const turns = messages.flatMap(({ metadata }) => metadata?.turn ?? [])
    const [first, last] = [turns[0] ?? 1, turns.at(-1) ?? 0]
    this.log.replaceChildren()
    if (first > 1) {
      const which = first > 2 ? `Turns 1 to ${first - 1} are` : 'Turn 1 is'
      const why = 'the agent keeps the latest messages of a session, HISTORY_MESSAGES of them.'
      this.log.append(element('p', 'notice', `${which} gone: ${why}`))
    }
    if (last < this.session.turns) this.remember({ turns: {} })
    for (const { role, parts, metadata } of messages) {
      if (role === 'user') this.addPrompt(textOf(parts))
      else new Reply(this.log).showParts(parts, metadata, this.known.turns?.[metadata.turn] ?? {})
    }
    if (last < this.session.turns) {
      this.note('The server no longer has this session. Your next message begins it anew.')
    }
    this.save({ turns: last })
    this.offerUnfinished(messages)
  }

  /** Offer to try again what this tab sent before it was loaded again, unless it was kept. */
  offerUnfinished(messages) {
    const { unfinished } = this.known
    if (typeof unfinished?.id !== 'string' || typeof unfinished.text !== 'string') return
    const { id, text, after, failure } = unfinished
    const isKept = messages.some((message, index) => {
      const isLater = messages[index + 1]?.metadata?.turn > after
      return message.id === id || (isLater && textOf(message.parts) === text)
    })
    if (isKept) return this.remember({ unfinished: null })
    const consequence = failure ? UNCHANGED : 'So far it was not kept. Trying again runs it once.'
    this.addPrompt(text)
    this.fail(failure ?? { type: 'interrupted', message: INTERRUPTED }, consequence, () =>
      this.takeTurn({ id, text }),
    )
  }

  /** The facts that only this tab has about the session. */
  get known() {
    return read('sessionStorage', this.key) ?? {}
  }

  get key() {
    return `${document.title}: ${this.session.id}`
  }

  remember(change) {
    write('sessionStorage', this.key, change && { ...this.known, ...change })
  }

  save(change) {
    saveSession(Object.assign(this.session, change))
  }

  addPrompt(text) {
    this.log.querySelector('.failure button')?.remove() // a later prompt makes a retry impossible
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
    const gentle = GENTLE[type]
    const title = gentle ?? 'Failed: '
    const kind = gentle ? '' : element('code', '', type)
    const failure = element('div', 'failure', element('strong', '', title, kind))
    if (message) failure.append(element('p', '', message))
    failure.append(element('p', '', consequence), again)
    failure.classList.toggle('stopped', Boolean(gentle))
    again.onclick = () => {
      failure.remove()
      prompt.focus()
      retry()
    }
    this.log.append(failure)
    say(`${title}${kind && type}. ${message} ${consequence}`)
  }

  /** Send a prompt as one turn. The id is its idempotency key: a kept turn is never run twice. */
  async takeTurn({ id, text }) {
    const { session } = this
    const message = { id, role: 'user', parts: [{ type: 'text', text }] }
    this.remember({ unfinished: { id, text, after: session.turns } })
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
      await this.rollBack(reply, failure, { id, text })
    }
    reply.node.ariaBusy = 'false'
    this.stop = null
    show()
  }

  commit(reply) {
    const { turn } = reply.metadata
    if (turn > this.session.turns + 1) {
      this.remember({ unfinished: null })
      return this.load() // another tab continued the session
    }
    if (turn <= this.session.turns) {
      const what = 'The server had lost this session. It began anew here, without what is above.'
      reply.node.previousSibling.before(element('p', 'notice', what))
    }
    reply.finish()
    const others = turn <= this.session.turns ? {} : this.known.turns
    this.remember({ unfinished: null, turns: { ...others, [turn]: reply.facts } })
    this.save({ turns: turn })
    say(`Committed as turn ${turn}.`)
  }

  async rollBack(reply, failure, prompt) {
    const isLocal = ['stopped', 'network_error'].includes(failure.type)
    let consequence = UNCHANGED
    // The page has left before the end of the turn, so it asks for the outcome.
    const soon = { signal: AbortSignal.timeout(5000) }
    const messages = isLocal ? await this.readTurns(soon).catch(() => null) : []
    if (messages?.at(-1)?.metadata.turn > this.session.turns) {
      return this.show(messages)
    }
    const { type, message } = failure
    const { unfinished } = this.known
    if (messages) this.remember({ unfinished: { ...unfinished, failure: { type, message } } })
    else consequence = 'It is unknown whether this turn was kept. Try again: it will not run twice.'
    reply.finish()
    reply.node.classList.add('failed')
    this.fail(failure, consequence, () => {
      reply.node.remove()
      this.takeTurn(prompt)
    })
  }
}

function textOf(parts) {
  return parts.map(({ text }) => text).join('')
}

// The server ------------------------------------------------------------------------------------

/** Call the server as the session's actor and return its answer; throw Failure for an error. */
async function call(session, path, options = {}) {
  const token = read('sessionStorage', TOKEN)
  const headers = { 'Content-Type': 'application/json', ...options.headers, ...authorization() }
  if (session.actor) headers[`${PREFIX}Custom-Actor-Id`] = session.actor
  const response = await fetch(path, { ...options, headers })
  if (response.ok) return response
  if (response.status === 401 && (await askToken(token))) return call(session, path, options)
  const { error } = await response.json().catch(() => ({}))
  throw new Failure(error?.type ?? `http_${response.status}`, error?.message ?? '')
}

function authorization() {
  const token = read('sessionStorage', TOKEN)
  return token ? { Authorization: `Bearer ${token}` } : {}
}

/** Show the model and the tools of the agent; behind a token, after it was entered. */
async function describeAgent() {
  const response = await fetch('agent.json', { headers: authorization() }).catch(() => null)
  if (!response?.ok) return
  const { model, tools } = await response.json()
  const parts = [
    model === 'offline' ? 'offline model' : model,
    ...(tools.length ? tools : ['no tools']),
  ]
  find('agent').textContent = parts.join(' · ')
  find('agent').title = parts.join('\n')
}

/** Ask for the token, unless it was given meanwhile; return whether there is one to try. */
async function askToken(refused) {
  if (dialog.open) await new Promise((resolve) => dialog.addEventListener('close', resolve))
  if (read('sessionStorage', TOKEN) !== refused) return true
  const what = refused ? 'The server does not accept this token.' : 'This server asks for a token.'
  const token = (await ask(what, 'Continue', 'API_TOKEN'))?.trim()
  if (token) {
    write('sessionStorage', TOKEN, token)
    describeAgent()
  }
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

// Dialogs and layout ----------------------------------------------------------------------------

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

/** Announce a text to screen readers. */
function say(text) {
  find('status').textContent = text
}

/** Keep the end in sight, unless the reader has scrolled up. */
let isAtEnd = true
function scrollDown(always = false) {
  if (always) isAtEnd = true
  if (isAtEnd) transcript.scrollTop = transcript.scrollHeight
  find('latest').hidden = isAtEnd
}

/** Make the composer as high as its text: not all browsers do. */
function grow() {
  prompt.style.height = 'auto'
  prompt.style.height = `${prompt.scrollHeight}px`
}

function stopTurn() {
  current.stop?.abort()
  prompt.focus() // the button that had it is gone
}

function toggleSidebar(isOpen) {
  find('sidebar').classList.toggle('open', isOpen)
  find('menu').ariaExpanded = String(isOpen)
}

// Input -----------------------------------------------------------------------------------------

async function send() {
  const conversation = current
  const text = prompt.value
  if (!text.trim() || conversation.stop || !actor.reportValidity()) return
  await conversation.ready
  if (conversation.stop) return
  prompt.value = ''
  grow()
  prompt.focus()
  const { session } = conversation
  const title = session.title || text.trim().replace(/\s+/g, ' ').slice(0, 80)
  conversation.addPrompt(text)
  conversation.save({ title })
  conversation.takeTurn({ id: newId(), text })
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
prompt.oninput = grow
document.onkeydown = (event) => {
  if (event.key !== 'Escape' || event.isComposing || dialog.open) return
  if (find('menu').ariaExpanded === 'true') {
    toggleSidebar(false)
    find('menu').focus()
  } else if (current.stop) stopTurn()
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
  find('latest').hidden = isAtEnd
}
find('cancel').onclick = () => dialog.close()
find('stop').onclick = stopTurn
find('latest').onclick = () => {
  scrollDown(true)
  prompt.focus()
}
find('new').onclick = startSession
find('end').onclick = endSession
find('menu').onclick = () => toggleSidebar(find('menu').ariaExpanded === 'false')
window.onhashchange = selectSession
window.onstorage = follow
window.onresize = grow
selectSession()
describeAgent()
