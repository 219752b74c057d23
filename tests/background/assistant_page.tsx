// A page with assistant-ui, whose chat continues a running turn after a reload.

import {
  AssistantRuntimeProvider,
  ComposerPrimitive,
  MessagePrimitive,
  ThreadPrimitive,
} from '@assistant-ui/react'
import { AssistantChatTransport, useAISDKRuntime } from '@assistant-ui/react-ai-sdk'
import { useChat } from '@ai-sdk/react'
import type { UIMessage } from 'ai'
import { useEffect, useState } from 'react'

const api = 'http://localhost:8080/api/chat'
const id = 'my-session'
const transport = new AssistantChatTransport({ api })

const Text = ({ text }: { text: string }) => text
const Parts = () => <MessagePrimitive.Parts components={{ Text }} />
const UserMessage = () => <p>user: {<Parts />}</p>
const AssistantMessage = () => <p>assistant: {<Parts />}</p>

function Chat({ messages }: { messages: UIMessage[] }) {
  const runtime = useAISDKRuntime(useChat({ id, messages, transport, resume: true }))
  return (
    <AssistantRuntimeProvider runtime={runtime}>
      <ThreadPrimitive.Messages components={{ UserMessage, AssistantMessage }} />
      <ComposerPrimitive.Root>
        <ComposerPrimitive.Input aria-label="Message" />
      </ComposerPrimitive.Root>
    </AssistantRuntimeProvider>
  )
}

export default function Page() {
  const [messages, setMessages] = useState<UIMessage[]>()
  useEffect(() => {
    void fetch(`${api}?id=${id}`).then(async (response) => setMessages(await response.json()))
  }, [])
  return messages && <Chat messages={messages} />
}
