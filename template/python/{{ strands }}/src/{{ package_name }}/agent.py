"""Your agent: system prompt and tools. Edit this file."""

from typing import Any

from strands import tool

SYSTEM_PROMPT = "You are a helpful assistant. Answer briefly and in plain words."


@tool
def word_count(text: str) -> int:
    """Count the words of a text."""
    return len(text.split())


TOOLS: list[Any] = [word_count]
