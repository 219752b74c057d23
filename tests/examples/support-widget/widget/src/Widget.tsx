// The conversation of a visitor. Nothing of a turn that fails is kept, so it can be tried again.

import { useChat } from '@ai-sdk/react'
import { useEffect, useState } from 'react'

import { loadMessages, sessionId, textOf, transport } from './chat.ts'

const id = sessionId()

export function Widget() {
  const { messages, setMessages, sendMessage, regenerate, stop, status, error } = useChat({
    id,
    transport,
  })
  const isRunning = status === 'submitted' || status === 'streaming'
  const [isLoaded, setLoaded] = useState(false)

  // Until then nothing can be sent: what is loaded would take its place.
  useEffect(() => {
    void loadMessages(id)
      .then(setMessages)
      .then(() => setLoaded(true))
  }, [setMessages])

  function send(form: FormData) {
    const text = String(form.get('text')).trim()
    if (text) void sendMessage({ text })
  }

  return (
    <section aria-label="Support">
      <h2>How can we help?</h2>
      <ol aria-live="polite">
        {messages.map((message) => (
          <li key={message.id} className={message.role}>
            {textOf(message)}
          </li>
        ))}
      </ol>
      {error && (
        <p role="alert">
          That did not work. <button onClick={() => void regenerate()}>Try again</button>
        </p>
      )}
      <form action={send}>
        <input name="text" aria-label="Your question" autoComplete="off" disabled={!isLoaded} />
        {isRunning ? (
          <button type="button" onClick={() => void stop()}>
            Stop
          </button>
        ) : (
          <button>Send</button>
        )}
      </form>
    </section>
  )
}
