// The page: the sessions of this browser, and the turns of the selected session.

import { ACCEPT, attachmentItems, fileList, filesIn, readFiles, sizeOf } from './attachments.js'
import { element } from './markdown.js'
import { parse, Reply } from './reply.js'

const PREFIX = 'X-Amzn-Bedrock-AgentCore-Runtime-'
// Agents with the same name can share an origin. At the root, keys of earlier versions stay valid.
const FOLDER = new URL('.', location).pathname
const NAME = FOLDER === '/' ? document.title : `${document.title} ${FOLDER}`
const SESSIONS = `${NAME}: sessions`
const TOKEN = `${NAME}: token`
const SHARED = 200 // turns per session with stored times and tokens
const MAX_BYTES = 4_500_000 // of the files of a prompt; the server may allow less
const find = (id) => document.getElementById(id)
const [transcript, prompt, actor, dialog] = ['transcript', 'prompt', 'actor', 'dialog'].map(find)
const picker = find('picker')
const conversations = new Map() // by session id: sessions selected since the page loaded
const filesOf = new WeakMap() // by the article of a prompt
let current

const INTERRUPTED = 'The page was reloaded before this turn ended.'
const UNCHANGED = 'Nothing was saved: this session is unchanged.'
const UNSAVED = 'It has not been saved so far.'
const UNKNOWN = 'This turn may or may not have been saved.'
const ASKING = 'The page keeps asking the server for a few minutes.'
const SECONDS = [3, 6, 12, 25, 50, 100] // between the questions
const UNSEEN = 2000 // milliseconds for which another replica may not know a new turn
const AGAIN = [0, 1, 2, 4, 8] // seconds before each attempt to resume a turn
const GONE = 'The server no longer has this session. Your next message starts it again.'
const MISSED = 'The page missed the end of this turn.'
const GENTLE = { stopped: 'Stopped', interrupted: 'Interrupted', events_lost: 'Interrupted' }
const SIGNED_OUT =
  'A proxy answered instead of the agent. Your sign-in may have expired: ' +
  'reload this page to sign in.'
const KEYS = find('keys').textContent
const RUNNING = 'Not sent yet: wait for the reply, or stop it.'
const NO_TEXT = 'Not sent yet: write a message about the attachments.'
const TOO_LARGE = 'Not attached: the files of a message can have 4.5 MB in total.'
const UNREADABLE = 'Not attached: the browser cannot read these files. Folders cannot be attached.'
const LOST_FILES = 'The reload dropped its files: edit the message, and attach them again.'
// The server does not know whether it saved the turn.
const UNSURE = ['store_unavailable', 'turn_lost']
// The server rejects these prompts before the turn runs; an unchanged retry fails again.
const REFUSED = ['invalid_request', 'payload_too_large', 'session_too_large', 'unsupported_file']
const UNSTORED =
  'This browser cannot store data for this page: its storage is full or blocked. ' +
  'If you reload or close the page, you cannot open this session again.'

/**
 * Why a turn failed: a type of the HTTP contract, or `stopped`, `network_error`, `signed_out`, or
 * `http_` and the status of an answer that another server sent.
 */
class Failure extends Error {
  constructor(type, message) {
    super(message)
    this.type = type
  }
}

/** The description of the agent: its model, its tools, and whether turns can be resumed. */
let agent = {}
let describing // the first request for it

/** Whether the agent may still work on the turn. */
function mayRun(type) {
  return ['network_error', 'events_lost'].includes(type) || type.startsWith('http_')
}

/** Whether the agent may have saved a failed turn, or may still save it. */
function hasUnknownOutcome({ failure, isUnclear }) {
  // A later attempt may fail in another way, although an earlier attempt was saved.
  const type = failure?.type ?? ''
  return isUnclear || UNSURE.includes(type) || mayRun(type)
}

function sleep(milliseconds) {
  return new Promise((resolve) => setTimeout(resolve, milliseconds))
}

// Browser storage: sessions for all tabs, and data for a single tab -----------------------------

// Values that the browser refused to store.
const unstored = { localStorage: new Map(), sessionStorage: new Map() }
let isWarned = false // whether the user was warned

function read(storage, key) {
  try {
    return JSON.parse(unstored[storage].get(key) ?? window[storage].getItem(key))
  } catch {
    return null
  }
}

function write(storage, key, value) {
  const text = JSON.stringify(value)
  try {
    window[storage].setItem(key, text)
    unstored[storage].delete(key)
  } catch {
    unstored[storage].set(key, text)
  }
}

function remove(storage, key) {
  unstored[storage].delete(key)
  try {
    window[storage].removeItem(key)
  } catch {} // the browser blocks its storage
}

// The sessions of this browser ----------------------------------------------------------------

/** Return the sessions, newest first; another tab may have changed them. */
function readSessions() {
  const all = read('localStorage', SESSIONS)
  return Array.isArray(all) ? all.filter(isSession) : []
}

function isSession(value) {
  const isText = ['id', 'title', 'actor'].every((name) => typeof value?.[name] === 'string')
  const isNumber = ['began', 'turns'].every((name) => Number.isFinite(value?.[name]))
  return isText && isNumber && /^[A-Za-z0-9][\w-]{0,255}$/.test(value.id)
}

function isListed({ id }) {
  return readSessions().some((saved) => saved.id === id)
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
  const hashes = Array.from(list.children, ({ firstChild }) => firstChild.hash)
  // Replacing a link during a click would lose the click and the focus.
  if (hashes.join() !== sessions.map(({ id }) => `#${id}`).join()) {
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
    const isRunning = conversations.get(session.id)?.stop || session.running
    link.className = isRunning ? 'running' : ''
  }
  const { session, stop } = current
  find('title').textContent = session.title || 'New session'
  find('send').hidden = Boolean(stop)
  find('stop').hidden = !stop
  actor.value = session.actor
  actor.readOnly = current.lastTurn > 0 || Boolean(stop) // a session belongs to its first actor
  find('end').disabled = !session.title
}

/** Return a new id. Over plain HTTP, browsers have no crypto.randomUUID. */
function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16))
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('')
}

function startSession(id = newId()) {
  const name = current ? current.session.actor : actor.defaultValue
  const session = { id, began: Date.now(), title: '', actor: name, turns: 0 }
  conversations.set(id, new Conversation(session))
  // The hashchange event comes too late: a prompt before it would go to the previous session.
  history.replaceState(null, '', `#${id}`)
  selectSession()
}

/** Select the session in the address. Ignore an unknown id, because links can be forged. */
function selectSession() {
  const id = location.hash.slice(1)
  const session = readSessions().find((saved) => saved.id === id)
  // The list shows a new session after its first prompt.
  const isOwn = typeof read('sessionStorage', draftKey(id)) === 'string'
  if (!conversations.has(id) && !session) return startSession(isOwn ? id : undefined)
  if (!conversations.has(id)) conversations.set(id, new Conversation(session).load())
  current = conversations.get(id)
  transcript.replaceChildren(current.log)
  scrollDown(true)
  toggleSidebar(false)
  show()
  compose(read('sessionStorage', draftKey(id)) ?? '')
  prompt.focus()
}

/** Start a session; the content of the composer moves to it from the ended session. */
function replaceSession() {
  const [text, files] = [prompt.value, current.attachments]
  startSession()
  compose(text, files)
}

/** Apply changes of another tab. */
function follow() {
  const sessions = readSessions()
  for (const [id, conversation] of conversations) {
    const session = sessions.find((saved) => saved.id === id)
    const { title, turns, changed, running } = conversation.session
    const isStarted = session?.running && session.running.began !== running?.began
    const isSame = session?.turns === turns && session?.changed === changed && !isStarted
    if (conversation.stop || (session ? isSame : !title)) continue
    if (session && conversation === current) {
      Object.assign(conversation.session, { running: undefined }, session)
      conversation.load()
    } else {
      if (!session) conversation.forget()
      conversations.delete(id)
    }
  }
  if (conversations.has(current.session.id)) return show()
  replaceSession()
  say('The session was ended in another tab.')
}

async function endSession() {
  const conversation = current
  const { session } = conversation
  const question = 'End this session? Its turns are deleted on the server.'
  if ((await ask(question, 'End session')) === null) return
  if (!(await conversation.stopTurn())) return
  const headers = { [`${PREFIX}Session-Id`]: session.id, Accept: 'application/json' }
  const body = '{"end_session": true}'
  try {
    await call(session, 'invocations', { method: 'POST', headers, body })
  } catch (error) {
    return conversations.get(session.id).note(`Not ended: ${asFailure(error).message}`)
  }
  conversations.get(session.id).forget()
  conversations.delete(session.id)
  saveSession(session, true)
  say('The session was ended.')
  if (current.session === session) replaceSession()
}

// A conversation --------------------------------------------------------------------------------

class Conversation {
  constructor(session) {
    this.session = session
    this.stop = null // stops the running turn
    this.ready = null
    this.draft = null // the last opened edit
    this.attachments = [] // files of the next prompt
    this.reading = Promise.resolve(true) // whether the last files could be read
    this.pendingReads = 0
    this.sentFiles = [] // files of the last sent prompt
    this.lastTurn = session.turns // the number of the last turn on the page
    this.userMessages = new Map() // the articles of prompts, by turn number
    this.replies = new Map() // by turn number
    this.log = element('div', 'log')
    this.log.setAttribute('role', 'log')
    this.log.ariaLabel = 'Prompts and replies'
    new ResizeObserver(() => scrollDown()).observe(this.log)
  }

  /** Read the turns from the server, and follow a turn that is running; `ready`: whether read. */
  load() {
    const isRead = () => true
    this.ready = this.reload().then(isRead, (error) => {
      this.fail(asFailure(error), 'The turns could not be read.', () => this.load())
      return false
    })
    return this
  }

  /** `earlier` is what stopped the running turn when the first attempt began. */
  async reload(earlier) {
    await described()
    const known = agent
    const before = earlier === undefined ? this.stop : earlier
    // In this order, a turn that ends in between is not missed.
    const stream = await openStream(this.session)
    const messages = await this.readTurns().catch((error) => {
      stream?.stop.abort()
      throw error
    })
    if (agent !== known) {
      stream?.stop.abort()
      return this.reload(before) // the user has entered the token
    }
    if (this.stop !== before) return stream?.stop.abort() // a turn has begun since
    if (stream) return this.resume(stream, messages)
    const { running } = this.stored ?? {}
    // A clock that was set back makes the difference negative.
    if (Math.abs(Date.now() - running?.began) < UNSEEN) {
      await sleep(250)
      return this.reload(before)
    }
    this.show(messages)
    this.unmark()
  }

  /** Follow a turn that this tab did not start, or that it started before a reload. */
  resume({ stop, events, start }, messages) {
    const { running } = this.session
    const id = start?.messageId ?? (running && `${running.id}-reply`)
    const last = messages.at(-1)
    const isAnswer = last?.parts.some(isPending) && last.id === id
    const isIt = (prompt) => prompt && `${prompt.id}-reply` === id
    const found = [this.tabData.unfinished, running].find(isIt)
    const { text = '' } = found ?? {}
    const shown = messages.find((message) => message.id === id)
    // Another replica no longer has the approved turn, but still the turn that it replaces.
    const replaces = found?.replaces ?? (found?.isAnswer && shown?.metadata.turn)
    if (!id || (shown && !isAnswer && !replaces)) {
      stop.abort() // the turn is committed
      return this.show(messages)
    }
    this.show(messages, false)
    if (isAnswer) {
      const asked = messages.at(-2)
      const prompt = { id: asked.id, text: textOf(asked.parts), isAnswer, isResumed: true }
      const userMessage = this.userMessages.get(last.metadata.turn)
      const reply = this.replies.get(last.metadata.turn)
      reply.resume()
      return void this.run(userMessage, reply, prompt, () => events, stop)
    }
    const prompt = { id: id.replace(/-reply$/, ''), text, replaces, isResumed: true }
    let userMessage = this.userMessages.get(replaces)
    while (userMessage?.nextSibling) userMessage.nextSibling.remove()
    if (userMessage) userMessage.querySelector('p').textContent = text
    else userMessage = this.addPrompt(text, this.sentFiles)
    this.run(userMessage, new Reply(this.log), prompt, () => events, stop)
  }

  /** Try to resume a turn whose connection was lost; return whether the turns were read. */
  async reconnect() {
    for (const seconds of AGAIN) {
      await sleep(seconds * 1000)
      if (!this.isOpen) return true
      const isRead = await this.reload().then(
        () => true,
        () => false,
      )
      if (isRead) return true
    }
    return false
  }

  /** Stop the running turn, also if other tabs follow it; return whether it no longer runs. */
  async stopTurn() {
    const { stop } = this
    if (!stop) return true
    if (!stop.isAnswered) stop.abort() // a message that is still being sent must not arrive
    const options = { method: 'DELETE', signal: AbortSignal.timeout(5000) }
    stop.request = agent.resumes && call(this.session, streamOf(this.session), options)
    try {
      await stop.request
    } catch (error) {
      if (stop.signal.aborted) return true // the page asks whether a turn runs
      if (this.stop) this.note(`Not stopped: ${asFailure(error).message}`)
      return !this.stop
    }
    stop.isAccepted = true
    // The replica that runs the turn ends its events within two seconds.
    for (let left = agent.resumes ? 25 : 0; left > 0 && this.stop === stop; left--) {
      await sleep(100)
    }
    stop.abort()
    return true
  }

  async readTurns(options) {
    const response = await call(this.session, `api/chat?id=${this.session.id}`, options)
    return parse(await response.text())
  }

  /** Show messages, and offer to retry a prompt unless its turn is running. */
  show(messages, isIdle = true) {
    const draft = this.takeDraft()
    const turns = messages.flatMap(({ metadata }) => metadata?.turn ?? [])
    const [first, last] = [turns[0] ?? 1, turns.at(-1) ?? 0]
    this.lastTurn = last
    this.userMessages.clear()
    this.replies.clear()
    this.log.replaceChildren()
    if (first > 1 && messages[0].role !== 'system') {
      const subject = first > 2 ? `Turns 1 to ${first - 1} are` : 'Turn 1 is'
      const reason = 'the agent keeps the latest messages of a session, HISTORY_MESSAGES of them.'
      this.log.append(element('p', 'notice', `${subject} gone: ${reason}`))
    }
    const isGone = last === 0 && this.session.turns > 0
    if (last < this.session.turns) {
      this.remember({ turns: {} })
      this.share({})
    }
    const shared = this.shared
    let prompt, files
    for (const { id, role, parts, metadata } of messages) {
      if (role === 'system') {
        this.log.append(element('p', 'notice', textOf(parts))) // about a summary
        continue
      }
      if (role === 'user') {
        prompt = { id, text: textOf(parts) }
        files = filesIn(parts)
        continue
      }
      const tabData = { ...this.tabData.turns?.[metadata.turn], ...shared[metadata.turn] }
      if (tabData.cut) this.log.append(element('p', 'note cut', tabData.cut))
      const userMessage = this.addPrompt(prompt.text, files)
      const reply = new Reply(this.log)
      reply.showParts(parts, metadata, tabData)
      this.offerChanges(userMessage, reply, prompt)
    }
    if (isGone) this.note(GONE)
    const waits = messages.at(-1)?.parts.some(({ state }) => state === 'approval-requested')
    this.save({ turns: waits ? last - 1 : last })
    if (isIdle) this.offerUnfinished(messages)
    this.restoreDraft(draft)
  }

  /** Return the open edit, or null. */
  takeDraft() {
    const { field } = this.draft ?? {}
    const isOpen = field && this.log.contains(field)
    return isOpen ? { ...this.draft, isFocused: document.activeElement === field } : null
  }

  /** Reopen an edit after a reload of the log. */
  restoreDraft(draft) {
    if (!draft) return
    const { field, turn, isFocused } = draft
    const focused = document.activeElement
    const userMessage = this.userMessages.get(turn)
    if (userMessage) {
      userMessage.querySelector('.change').click()
      this.draft.field.value = field.value
      if (!isFocused) focused.focus()
    } else if (this === current && !prompt.value) {
      compose(field.value)
    }
  }

  /** Offer to edit or retry a turn, and to answer its pending calls. */
  offerChanges(userMessage, reply, prompt) {
    const { turn } = reply.metadata
    const [edit, again] = ['Edit', 'Retry'].map((name) => element('button', 'change', name))
    edit.onclick = () => this.edit(userMessage, { ...prompt, replaces: turn })
    again.onclick = () => this.replace({ ...prompt, replaces: turn })
    userMessage.querySelector('.change')?.remove()
    userMessage.append(edit)
    reply.node.querySelector('.outcome')?.append(' ', again)
    this.userMessages.set(turn, userMessage)
    this.replies.set(turn, reply)
    reply.onAnswered = (answers) => this.answer(userMessage, reply, prompt, answers)
  }

  /** Show a field that edits the text of a prompt; its files stay. */
  edit(userMessage, prompt) {
    const [field, cancel] = [element('textarea'), element('button', '', 'Cancel')]
    const form = element('form', 'edit', field, element('button', '', 'Send'), cancel)
    Object.assign(field, { value: prompt.text, ariaLabel: 'Edited message', rows: 3 })
    cancel.type = 'button'
    userMessage.classList.add('edited')
    userMessage.append(form)
    field.focus()
    this.draft = { turn: prompt.replaces, field }
    const close = () => {
      form.remove()
      userMessage.classList.remove('edited')
    }
    cancel.onclick = () => {
      close()
      userMessage.querySelector('.change').focus()
    }
    field.onkeydown = (event) => {
      if (isComposing(event)) return
      if (event.key === 'Escape') cancel.click()
      else if (event.key === 'Enter' && !event.shiftKey) form.requestSubmit()
      else return
      event.preventDefault()
      event.stopPropagation()
    }
    form.onsubmit = (event) => {
      event.preventDefault()
      if (!field.value.trim()) return
      close()
      this.replace({ ...prompt, text: field.value, how: 'Edited' })
    }
  }

  /** Send a prompt that replaces its turn and drops all later turns. */
  replace(prompt) {
    const userMessage = this.userMessages.get(prompt.replaces)
    if (this.stop || !userMessage) return
    const text = userMessage.querySelector('p').textContent
    const reply = this.replies.get(prompt.replaces).texts.join('')
    const was = { text, reply, last: this.lastTurn }
    const count = this.lastTurn - prompt.replaces
    const removal = count && `${count} later ${count === 1 ? 'turn was' : 'turns were'} removed`
    const cut = [prompt.how ?? (count && 'Tried again'), removal].filter(Boolean).join(': ')
    while (userMessage.nextSibling) userMessage.nextSibling.remove()
    userMessage.querySelector('p').textContent = prompt.text
    find('prompt').focus() // the focused button was removed
    this.takeTurn({ ...prompt, was, cut: cut && `${cut}.` }, userMessage)
  }

  /** Offer to retry a prompt that this tab sent before a reload, unless its turn was saved. */
  offerUnfinished(messages) {
    const { unfinished } = this.tabData
    if (typeof unfinished?.id !== 'string' || typeof unfinished.text !== 'string') return
    const { id, text, after, failure, replaces, how, isAnswer, answered, was } = unfinished
    const files = replaces ? filesOf.get(this.userMessages.get(replaces)) : this.sentFiles
    const isIncomplete = unfinished.hasFiles && !files?.length
    const isUnclear = hasUnknownOutcome(unfinished)
    const shown = failure ?? { type: 'interrupted', message: INTERRUPTED }
    // Until a turn ends, the server has the state before it: the calls are still pending.
    const waits = isAnswer && messages.some(({ parts }) => parts.some(isOneOf(answered)))
    if (waits && isUnclear) {
      const notice = this.fail(shown, `${UNKNOWN} ${ASKING}`, () => this.load())
      this.askAgain(notice, messages)
      return
    }
    const isKept = messages.some((message, index) => {
      const reply = messages[index + 1]
      const turn = reply?.metadata?.turn
      const isSame = turn > after && textOf(message.parts) === text
      if (!replaces) return message.id === id || isSame
      // The server reported the failure.
      const isKnown = failure && failure.type !== 'stopped' && !isUnclear
      if (!isSame || turn !== replaces || isKnown) return false
      const isOther = withoutSpace(textOf(reply.parts)) !== withoutSpace(was?.reply ?? '')
      return text !== was?.text || isOther || this.lastTurn < was.last
    })
    if (isKept) {
      const notice = failure && waits && this.note(GENTLE[failure.type] ?? failure.message)
      if (notice && failure.type === 'stopped') this.askAgain(notice, messages)
      return this.remember({ unfinished: null })
    }
    let consequence = failure ? UNCHANGED : UNSAVED
    if (isUnclear) consequence = `${UNKNOWN} ${ASKING}`
    if (isIncomplete) consequence += ` ${LOST_FILES}`
    else if (consequence === UNSAVED) consequence += ' Trying again runs it once.'
    const userMessage = this.addPrompt(text, files)
    const retry = async () => {
      if (!replaces) return this.takeTurn({ id, text }, userMessage)
      // The server would replace the turn twice if the first request was saved since.
      const isRead = await this.load().ready
      if (isRead && this.tabData.unfinished) this.replace({ id, text, replaces, how })
    }
    const notice = this.fail(shown, consequence, isIncomplete ? undefined : retry, () => {
      userMessage.remove()
      this.recompose({ id, text, replaces }, files)
    })
    if (isUnclear || failure?.type === 'stopped') this.askAgain(notice, messages)
  }

  /**
   * Ask the server several times whether it saved a turn after all; if so, show its turns.
   *
   * `before` is its last answer. Without it, `isNews` returns whether to show the first answer.
   */
  async askAgain(failure, before, isNews) {
    let previous = before && JSON.stringify(before)
    for (const seconds of SECONDS) {
      await sleep(seconds * 1000)
      if (!this.isOpen) return
      const messages = await this.readTurns().catch(() => null)
      if (this.stop || !this.isOpen || !this.log.contains(failure)) return
      if (!messages) continue
      const answer = JSON.stringify(messages)
      if (previous === null ? isNews(messages) : answer !== previous) return this.show(messages)
      previous = answer
    }
  }

  /** Return whether the session was neither ended nor reloaded. */
  get isOpen() {
    return conversations.get(this.session.id) === this
  }

  /** The session's data in this tab. */
  get tabData() {
    return read('sessionStorage', this.key) ?? {}
  }

  get key() {
    return `${NAME}: ${this.session.id}`
  }

  remember(change) {
    if (!this.isOpen) return
    write('sessionStorage', this.key, change && { ...this.tabData, ...change })
  }

  /** Remember a prompt until its turn is saved. Browser storage has no room for its files. */
  rememberUnfinished(prompt, files) {
    this.sentFiles = files
    this.remember({ unfinished: { ...prompt, hasFiles: files.length > 0 } })
  }

  /** Times and tokens by turn number, for all tabs. */
  get shared() {
    return read('localStorage', this.key) ?? {}
  }

  share(turns) {
    if (!this.isOpen) return
    write('localStorage', this.key, Object.fromEntries(Object.entries(turns).slice(-SHARED)))
  }

  /** Remove the data of an ended session. */
  forget() {
    for (const [storage, key] of [
      ['sessionStorage', this.key],
      ['sessionStorage', draftKey(this.session.id)],
      ['localStorage', this.key],
    ]) {
      remove(storage, key)
    }
  }

  /** The session as the tabs have saved it, unless it has ended. */
  get stored() {
    return readSessions().find(({ id }) => id === this.session.id)
  }

  /** Save data of the session, unless it has ended; other tabs may have saved the rest. */
  save(change) {
    Object.assign(this.session, change)
    if (this.stored) saveSession({ ...this.stored, ...change })
  }

  /** Remove the mark of the running turn, unless another tab has started the next turn. */
  unmark() {
    const { running } = this.session
    this.session.running = undefined
    const isLatest = running && running.began === this.stored?.running?.began
    if (isLatest) this.save({ running: undefined })
  }

  /** Put a failed prompt back into its field for changes. */
  recompose({ id, text, replaces }, files = []) {
    this.remember({ unfinished: null })
    const userMessage = this.userMessages.get(replaces)
    if (userMessage) return this.edit(userMessage, { id, text, replaces })
    const draft = [text, prompt.value].filter(Boolean).join('\n\n')
    compose(draft, [...files, ...this.attachments])
    prompt.focus()
  }

  /** Attach files to the next prompt; return whether they are attached. */
  async attach(files) {
    const sizes = [...this.attachments.map(sizeOf), ...files.map(({ size }) => size)]
    const total = sizes.reduce((sum, size) => sum + size, 0)
    const parts = total > MAX_BYTES ? null : await readFiles(files)
    if (!parts) {
      hint(total > MAX_BYTES ? TOO_LARGE : UNREADABLE)
      return false
    }
    this.attachments = [...this.attachments, ...parts]
    showAttachments()
    hint('')
    say(`${files.map(({ name }) => name).join(', ')} attached.`)
    return true
  }

  addPrompt(text, files = []) {
    this.log.querySelector('.failure .buttons')?.remove() // a later prompt prevents a retry
    const about = element('h2', 'unseen', 'You')
    const userMessage = element('article', 'user', about, fileList(files), element('p', '', text))
    filesOf.set(userMessage, files)
    this.log.append(userMessage)
    return userMessage
  }

  note(text) {
    const notice = element('p', 'notice', text)
    this.log.append(notice)
    say(text)
    return notice
  }

  /** Show a failure below its turn; `retry` and `edit` of the prompt get a button. */
  fail({ type, message }, consequence, retry, edit) {
    const [again, change] = [element('button', '', 'Try again'), element('button', '', 'Edit')]
    const gentle = GENTLE[type]
    const title = gentle ?? 'Failed: '
    const kind = gentle ? '' : element('code', '', type)
    const failure = element('div', 'failure', element('strong', '', title, kind))
    if (message) failure.append(element('p', '', message))
    const buttons = element('div', 'buttons')
    if (retry) buttons.append(again)
    if (edit) buttons.append(change)
    failure.append(element('p', '', consequence), buttons)
    failure.classList.toggle('stopped', Boolean(gentle))
    again.onclick = () => {
      failure.remove()
      prompt.focus()
      retry()
    }
    change.onclick = () => {
      failure.remove()
      edit()
    }
    this.log.append(failure)
    say(`${title}${kind && type}. ${message} ${consequence}`)
    return failure
  }

  /** Send a prompt as one turn. Its id is the idempotency key: a saved turn never runs twice. */
  takeTurn(prompt, userMessage) {
    const { id, text, replaces, how, was } = prompt
    const after = (replaces ?? this.lastTurn + 1) - 1
    const files = filesOf.get(userMessage)
    const { unfinished } = this.tabData
    const isUnclear = unfinished?.id === id && hasUnknownOutcome(unfinished)
    this.rememberUnfinished({ id, text, after, replaces, how, was, isUnclear }, files)
    const message = { id, role: 'user', parts: [{ type: 'text', text }, ...files] }
    const messageId = replaces && id
    const request = { messages: [message], messageId }
    return this.run(userMessage, new Reply(this.log), prompt, this.poster(request, prompt))
  }

  /** Send the user's answers to pending calls. */
  answer(userMessage, reply, prompt, answers) {
    const state = 'approval-responded'
    const parts = answers.map((approval) => ({ type: 'dynamic-tool', state, approval }))
    const answered = { ...prompt, isAnswer: true }
    const ids = answers.map(({ id }) => id)
    const unfinished = { ...answered, after: this.lastTurn - 1, answered: ids }
    this.rememberUnfinished(unfinished, filesOf.get(userMessage))
    while (reply.node.nextSibling) reply.node.nextSibling.remove() // about an earlier answer
    reply.resume()
    const request = { messages: [{ id: `${prompt.id}-reply`, role: 'assistant', parts }] }
    this.run(userMessage, reply, answered, this.poster(request, answered))
  }

  /** Return a function that sends a request and returns the events of its turn. */
  poster(request, { id, text, replaces, isAnswer }) {
    return async (signal) => {
      const isStopped = new Promise((resolve) => signal.addEventListener('abort', resolve))
      await Promise.race([described(), isStopped])
      const turn = {
        id: this.session.id,
        trigger: 'submit-message',
        seen: this.lastTurn,
        ...request,
      }
      const options = { method: 'POST', body: JSON.stringify(turn), signal }
      const response = await call(this.session, 'api/chat', options)
      const running = { id, text, replaces, isAnswer, began: Date.now() }
      if (agent.resumes) this.save({ running }) // for other tabs
      return readEvents(response)
    }
  }

  /** Show a turn until it ends; `open` returns its events. */
  async run(userMessage, reply, prompt, open, stop = new AbortController()) {
    this.stop = stop
    reply.node.ariaBusy = 'true'
    this.log.classList.add('busy')
    this.log.ariaBusy = 'true'
    scrollDown(true)
    show()
    try {
      const events = await open(stop.signal)
      stop.isAnswered = true
      for await (const event of events) reply.take(event)
      if (reply.error) throw new Failure(...reply.error)
      if (!reply.metadata) throw new TypeError('the stream was cut')
      this.commit(userMessage, reply, prompt)
    } catch (error) {
      let isRead = false
      let failure = asFailure(error)
      if ((stop.signal.aborted || stop.isAccepted) && !UNSURE.includes(failure.type)) {
        failure = new Failure('stopped', '')
        await Promise.allSettled([stop.request])
        const isEndSeen = error instanceof Failure
        if (!isEndSeen && (await mayStillRun(this.session))) {
          this.remember({ unfinished: { ...this.tabData.unfinished, isUnclear: true } })
        }
      }
      if (agent.resumes && mayRun(failure.type)) {
        const { type, message } = failure
        this.remember({ unfinished: { ...this.tabData.unfinished, failure: { type, message } } })
        isRead = await this.reconnect()
        if (this.stop !== stop) return // the turn was resumed
      }
      if (!isRead) await this.rollBack(userMessage, reply, failure, prompt)
    }
    this.unmark()
    reply.node.ariaBusy = 'false'
    this.log.classList.remove('busy')
    this.log.ariaBusy = 'false'
    this.stop = null
    if (this === current && find('keys').textContent === RUNNING) hint('')
    if (isListed(this.session)) show()
    else follow() // another tab ended the session
  }

  commit(userMessage, reply, prompt) {
    const { turn, dropped } = reply.metadata
    const expected = prompt.replaces ?? (prompt.isAnswer ? turn : this.lastTurn + 1)
    const waits = reply.answers.size > 0
    const change = { turns: waits ? turn - 1 : turn, changed: newId() }
    this.remember({ unfinished: null })
    if (dropped || turn > expected || prompt.isResumed) {
      this.save(change)
      this.load() // another tab continued the session, or the pending turn is gone
      if (dropped) this.ready.then(() => this.note('The pending turn was dropped.'))
      return
    }
    if (turn < expected) {
      const notice = 'The server lost this session. It started again here, without the turns above.'
      userMessage.before(element('p', 'notice', notice))
    }
    reply.metadata.cut = prompt.cut
    reply.finish()
    if (userMessage.previousSibling?.classList.contains('cut')) userMessage.previousSibling.remove()
    if (prompt.cut) userMessage.before(element('p', 'note cut', prompt.cut))
    this.lastTurn = turn
    this.offerChanges(userMessage, reply, { id: prompt.id, text: prompt.text })
    const { recalled, ...facts } = reply.facts
    this.remember({ turns: { ...factsBefore(this.tabData.turns, turn), [turn]: { recalled } } })
    this.share({ ...factsBefore(this.shared, turn), [turn]: facts })
    this.save(change)
    if (prompt.isResumed) this.load() // this tab may lack the prompt's files
    const isUnstored = unstored.localStorage.has(SESSIONS)
    if (isUnstored && !isWarned) this.note(UNSTORED)
    isWarned ||= isUnstored
    say(waits ? 'This turn waits for your approval.' : `Committed as turn ${turn}.`)
  }

  async rollBack(userMessage, reply, failure, prompt) {
    const { type, message } = failure
    const isConflict = type === 'session_conflict'
    const isShort = prompt.replaces || prompt.isAnswer || isConflict // the log lacks turns
    let consequence = isShort ? UNKNOWN : `${UNKNOWN} Try again: it will not run twice.`
    consequence += ` ${ASKING}`
    // The page or the server does not know the outcome, so the page asks for it.
    const soon = { signal: AbortSignal.timeout(5000) }
    let unfinished = { ...this.tabData.unfinished, failure: { type, message } }
    const isUnclear = hasUnknownOutcome(unfinished)
    const asks = isShort || type === 'stopped' || isUnclear
    const messages = asks ? await this.readTurns(soon).catch(() => null) : []
    if (isConflict && prompt.replaces) {
      const { text, how } = prompt // edited text becomes a new prompt
      const after = messages?.at(-1)?.metadata.turn ?? this.lastTurn
      const { failure, hasFiles } = unfinished
      unfinished = how ? { id: newId(), text, after, failure, hasFiles } : null
    }
    this.remember({ unfinished })
    if (messages && !isUnclear) consequence = UNCHANGED
    const hasMore = (read) => {
      const isKept = read.some(({ id }) => id === prompt.id)
      return isShort || isKept || read.at(-1)?.metadata.turn > this.lastTurn
    }
    if (messages && hasMore(messages)) {
      this.show(messages)
      if (isConflict) this.note('The session had other turns, which are shown now.')
      return
    }
    reply.finish()
    if (REFUSED.includes(type) && !isShort && this === current) {
      userMessage.remove()
      reply.node.remove()
      this.recompose(prompt, filesOf.get(userMessage))
      return hint(`Not sent: ${message}`)
    }
    reply.node.classList.add('failed')
    const retry = () => {
      reply.node.remove()
      if (isShort) this.load()
      else this.takeTurn(prompt, userMessage)
    }
    const edit = () => {
      reply.node.remove()
      userMessage.remove()
      this.recompose(prompt, filesOf.get(userMessage))
    }
    const notice = this.fail(failure, consequence, retry, isShort ? undefined : edit)
    if (asks) this.askAgain(notice, messages, (read) => hasMore(read) || !isUnclear)
  }
}

/** Return the data of the turns before this turn. */
function factsBefore(turns, turn) {
  return Object.fromEntries(Object.entries(turns ?? {}).filter(([number]) => number < turn))
}

/** Return whether a part waits for an approval. */
function isPending({ state }) {
  return state === 'approval-requested'
}

/** Return a predicate: whether a part is waiting for one of these approvals. */
function isOneOf(ids) {
  return ({ state, approval }) => state === 'approval-requested' && ids?.includes(approval.id)
}

function textOf(parts) {
  return parts.map(({ text }) => text).join('')
}

/** Return a text without white space: a stored reply lacks blank texts. */
function withoutSpace(text) {
  return text.replace(/\s/g, '')
}

// The server ------------------------------------------------------------------------------------

/** Call the server as the session's actor and return its answer; throw Failure for an error. */
async function call(session, path, options = {}) {
  const token = read('sessionStorage', TOKEN)
  const always = { 'Content-Type': 'application/json', Prefer: 'exact-numbers' }
  const headers = { ...always, ...options.headers, ...authorization() }
  if (session.actor) headers[`${PREFIX}Custom-Actor-Id`] = session.actor
  const response = await fetch(path, { ...options, headers, redirect: 'manual' })
  const { ok, status, type } = response
  const isPage = /html/.test(response.headers.get('Content-Type'))
  if (ok && !isPage) return response
  const { error } = await response.json().catch(() => ({}))
  if (error?.type === 'unauthorized' && (await askToken(token))) return call(session, path, options)
  if (error?.type) throw new Failure(error.type, error.message)
  const isRedirect = type === 'opaqueredirect'
  if (ok || isRedirect || status === 401) throw new Failure('signed_out', SIGNED_OUT)
  throw new Failure(`http_${status}`, `A proxy answered instead of the agent: ${status}.`)
}

/**
 * Return the running turn of a session: its events from the beginning, the first of them, and what
 * closes the connection. Return null if no turn runs.
 *
 * If the server has dropped the first events, there is no first event.
 */
async function openStream(session) {
  if (!agent.resumes) return null
  const stop = new AbortController()
  const response = await call(session, streamOf(session), { signal: stop.signal })
  const turnId = response.headers.get('X-Turn-Id')
  if (response.status === 204 && !turnId) return null
  const events = readEvents(response)
  const { value: start } = response.status === 204 ? {} : await events.next()
  if (start?.messageId) return { stop, events, start }
  return { stop, events: awaitEnd(session, turnId, stop.signal) }
}

/** Wait until a turn has ended whose events cannot be read. */
async function* awaitEnd(session, turnId, signal) {
  let runningId = turnId
  while (runningId === turnId) {
    await new Promise((resolve, reject) => {
      setTimeout(resolve, 3000)
      signal.onabort = reject
    })
    // Without an answer, the page resumes the turn, or asks for its outcome.
    const response = await call(session, streamOf(session), { signal }).catch(() => null)
    signal.throwIfAborted()
    await response?.body?.cancel()
    runningId = response?.headers.get('X-Turn-Id')
  }
  yield { type: 'error', errorText: `events_lost: ${MISSED}` }
}

/** Return whether a turn that was stopped may still run; wait two seconds for its end. */
async function mayStillRun(session) {
  if (!agent.resumes) return false
  for (const seconds of [0, 1, 1]) {
    await sleep(seconds * 1000)
    const asked = openStream(session).catch(() => undefined)
    asked.then((stream) => stream?.stop.abort())
    if ((await Promise.race([asked, sleep(5000)])) === null) return false
  }
  return true
}

function streamOf({ id }) {
  return `api/chat/${id}/stream`
}

/** Remove the marks of turns that ended while this page was closed. */
async function checkRunning() {
  await described()
  for (const session of readSessions()) {
    if (!session.running || conversations.has(session.id)) continue
    const stream = await openStream(session).catch(() => undefined)
    stream?.stop.abort()
    // Another tab may have changed the session since.
    const latest = readSessions().find(({ id }) => id === session.id)
    if (conversations.has(session.id)) continue
    const isSame = latest?.running?.began === session.running.began
    if (stream === null && isSame) saveSession({ ...latest, running: undefined })
  }
}

/** Return the header with the token. A proxy may need Authorization for its own password. */
function authorization() {
  const token = read('sessionStorage', TOKEN)
  return token ? { 'X-API-Token': token } : {}
}

/** Wait for the description of the agent; ask for it again if the server did not answer. */
async function described() {
  await describing
  if (!agent.tools) await describeAgent()
}

/** Show the agent's model and tools; ask for the token first if needed. */
async function describeAgent() {
  const options = { headers: authorization(), signal: AbortSignal.timeout(10_000) }
  const response = await fetch('agent.json', options).catch(() => null)
  const description = (await response?.json().catch(() => null)) ?? {}
  const { model, tools } = description
  if (!tools) return
  agent = description
  const parts = [
    model === 'offline' ? 'offline model' : model,
    ...(tools.length ? tools : ['no tools']),
  ]
  find('agent').textContent = parts.join(' · ')
  find('agent').title = parts.join('\n')
}

/** Ask for the token unless the user has entered it; return whether there is a token. */
async function askToken(refused) {
  if (dialog.open) {
    await new Promise((resolve) => dialog.addEventListener('close', resolve, { once: true }))
  }
  if (read('sessionStorage', TOKEN) !== refused) return true
  const question = refused
    ? 'The server does not accept this token.'
    : 'This server asks for a token.'
  const token = (await ask(question, 'Continue', 'API_TOKEN'))?.trim()
  if (token) {
    write('sessionStorage', TOKEN, token)
    await describeAgent()
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
    for (const line of events.join('\n').split('\n')) {
      // Other lines are comments, which keep a proxy's connection open.
      const data = line.replace(/^data: /, '')
      if (data !== line && data !== '[DONE]') yield parse(data)
    }
  }
}

function asFailure(error) {
  const message = 'The server does not answer, or the connection was lost.'
  return error instanceof Failure ? error : new Failure('network_error', message)
}

// Dialogs and layout ----------------------------------------------------------------------------

/** Ask for a confirmation or, with a label, for text; null means no. */
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

/** Announce text to screen readers. */
function say(text) {
  find('status').textContent = text
}

/** Keep the end in sight, unless the reader has scrolled up. */
let [isAtEnd, lastTop, lastHeight, lastInput] = [true, 0, 0, -Infinity]
function scrollDown(always = false) {
  if (always) isAtEnd = true
  if (isAtEnd) {
    transcript.scrollTop = transcript.scrollHeight
    lastTop = transcript.scrollTop
    lastHeight = transcript.scrollHeight
  }
  find('latest').hidden = isAtEnd
}

/** Show why a message was not sent, until the content of the composer changes. */
function hint(text) {
  find('keys').textContent = text || KEYS
  find('keys').classList.toggle('reason', Boolean(text))
  if (text) say(text)
}

function draftKey(id) {
  return `${NAME}: ${id}: draft`
}

/** Put text and files into the composer; only the text survives a reload. */
function compose(text, files = current.attachments) {
  prompt.value = text
  current.attachments = files
  showAttachments()
  keepDraft()
}

function showAttachments() {
  const list = find('attachments')
  list.replaceChildren(...attachmentItems(current.attachments, removeAttachment))
  list.hidden = current.attachments.length === 0
}

function removeAttachment(index) {
  const { attachments } = current
  current.attachments = attachments.toSpliced(index, 1)
  showAttachments()
  hint('')
  say(`${attachments[index].filename} removed.`)
  // The focused button was removed.
  const buttons = find('attachments').querySelectorAll('button')
  const next = buttons[index] ?? prompt
  next.focus()
}

/** Attach files to the next prompt of the selected session. */
function attach(files) {
  const [conversation, list] = [current, Array.from(files)]
  // A second paste waits for the first, because the limit applies to all files.
  conversation.pendingReads++
  conversation.reading = conversation.reading.then(async () => {
    const isAttached = await conversation.attach(list)
    conversation.pendingReads--
    return isAttached
  })
}

function keepDraft() {
  hint('')
  grow()
  const key = draftKey(current.session.id)
  if (prompt.value) write('sessionStorage', key, prompt.value)
  else remove('sessionStorage', key)
}

/** Fit the height of the composer to its text: not all browsers do. */
function grow() {
  prompt.style.height = 'auto'
  prompt.style.height = `${prompt.scrollHeight}px`
}

function stopTurn() {
  current.stopTurn()
  prompt.focus() // the focused button was removed
}

function toggleSidebar(isOpen) {
  find('sidebar').classList.toggle('open', isOpen)
  find('menu').ariaExpanded = String(isOpen)
}

// Input -----------------------------------------------------------------------------------------

/** Return whether a key belongs to an input method; Safari marks Enter only by its code. */
function isComposing({ isComposing, keyCode }) {
  return isComposing || keyCode === 229
}

async function send() {
  const conversation = current
  if (!prompt.value.trim() && conversation.attachments.length > 0) hint(NO_TEXT)
  if (!prompt.value.trim() || !actor.reportValidity()) return
  const isReading = conversation.pendingReads > 0
  const [isAttached] = await Promise.all([conversation.reading, conversation.ready])
  if (isReading && !isAttached) return // the hint says why
  const [text, files] = [prompt.value, conversation.attachments]
  if (conversation !== current || !text.trim()) return
  if (conversation.stop) return hint(RUNNING)
  compose('', [])
  prompt.focus()
  const { session } = conversation
  const title = session.title || text.trim().replace(/\s+/g, ' ').slice(0, 80)
  const userMessage = conversation.addPrompt(text, files)
  saveSession(Object.assign(session, { title }))
  conversation.takeTurn({ id: newId(), text }, userMessage)
}

find('composer').onsubmit = (event) => {
  event.preventDefault()
  send()
}
prompt.onkeydown = (event) => {
  if (event.key !== 'Enter' || event.shiftKey || isComposing(event)) return
  event.preventDefault()
  send()
}
prompt.oninput = keepDraft
prompt.onpaste = (event) => {
  const { files, types } = event.clipboardData
  // A copied table also includes a picture: paste its text. A copied file also includes its name.
  const isTable = types.includes('text/plain') && types.includes('text/html')
  if (files.length === 0 || isTable) return
  event.preventDefault()
  attach(files)
}
document.ondragover = (event) => {
  if (!event.dataTransfer.types.includes('Files')) return
  event.preventDefault() // enables drop
  document.body.classList.add('dropping')
}
document.ondragleave = (event) => {
  // Other elements are still in the window.
  if (!event.relatedTarget) document.body.classList.remove('dropping')
}
document.ondrop = (event) => {
  document.body.classList.remove('dropping')
  if (!event.dataTransfer.types.includes('Files')) return
  event.preventDefault() // the browser would open the file and leave the page
  if (!dialog.open) attach(event.dataTransfer.files)
}
find('attach').onclick = () => picker.click()
picker.accept = ACCEPT
picker.onchange = () => {
  attach(picker.files)
  picker.value = '' // so that the same file can be attached again
  prompt.focus()
}
document.onkeydown = (event) => {
  if (event.key !== 'Escape' || isComposing(event) || dialog.open) return
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
  const { scrollHeight, scrollTop, clientHeight } = transcript
  const isNear = scrollHeight - scrollTop - clientHeight < 40
  // Browsers also scroll up when the content is briefly shorter.
  const isByReader = scrollHeight === lastHeight || performance.now() - lastInput < 1000
  isAtEnd = isNear || (isAtEnd && !(scrollTop < lastTop && isByReader))
  lastTop = scrollTop
  lastHeight = scrollHeight
  if (isNear) find('latest').hidden = true
  else scrollDown() // follow the growing content
}
for (const type of ['wheel', 'touchmove', 'keydown', 'pointerdown']) {
  transcript.addEventListener(type, () => (lastInput = performance.now()), { passive: true })
}
find('cancel').onclick = () => dialog.close()
find('stop').onclick = stopTurn
find('latest').onclick = () => {
  scrollDown(true)
  prompt.focus()
}
find('new').onclick = () => startSession()
find('end').onclick = endSession
find('menu').onclick = () => toggleSidebar(find('menu').ariaExpanded === 'false')
window.onhashchange = selectSession
window.onstorage = follow
window.onresize = grow
describing = describeAgent()
selectSession()
checkRunning()
