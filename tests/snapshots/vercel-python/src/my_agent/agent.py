"""The agent: what it is told, and what it can do. This is the file to make your own."""

from typing import Any

import ai

SYSTEM_PROMPT = "You are a helpful assistant. Answer briefly and in plain words."


# Tools are async; what would block other turns belongs in asyncio.to_thread.
@ai.tool
async def word_count(text: str) -> int:
    """Count the words of a text."""
    return len(text.split())


TOOLS: list[Any] = [word_count]
