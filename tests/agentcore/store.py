"""Runs where the real packages are: the memory store that AWS's SDK has for Strands, in use.

Its argument is the id of a memory; it prints what a search finds, as JSON.
"""

import asyncio
import json
import sys
from importlib import import_module
from typing import Any


async def main(memory: str) -> list[Any]:
    stores: Any = import_module("bedrock_agentcore.memory.integrations.strands.memorystore")
    context = import_module("strands.memory").AddMessagesContext(sequence_numbers=[0, 1])
    store = stores.AgentCoreMemoryStore(
        memory_id=memory,
        actor_id="alice",
        session_id="s1",
        namespace_path="/users/{actorId}",
        writable=True,
        min_score=0.3,
    )
    messages: Any = [
        {"role": "user", "content": [{"text": "My cat is called Miso"}]},
        {"role": "assistant", "content": [{"text": "Noted."}]},
    ]
    await store.add_messages(messages, context)
    await store.add_messages(messages, context)
    found = await store.search("What is my cat called?")
    return [[entry.content, entry.metadata["_namespaces"]] for entry in found]


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(sys.argv[1]))))
