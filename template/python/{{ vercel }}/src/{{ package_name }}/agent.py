"""Your agent: system prompt and tools. Edit this file."""

from typing import Any

import ai

SYSTEM_PROMPT = "You are a helpful assistant. Answer briefly and in plain words."


# Tools are async. Run blocking code with asyncio.to_thread.
@ai.tool
async def word_count(text: str) -> int:
    """Count the words of a text."""
    return len(text.split())


TOOLS: list[Any] = [word_count]
