"""Reads stored messages of Strands Agents for a page."""

from typing import Any

from .contract import Chunk
from .turn import tools_of


def read_turns(messages: list[Any]) -> list[tuple[str, list[Chunk]]]:
    """Return the prompt and the chunks of each turn."""
    turns = list[tuple[str, list[Chunk]]]()
    for message in messages:
        content = message["content"]
        if message["role"] == "user" and "text" in content[0]:
            turns.append(("".join(block.get("text", "") for block in content), []))
        elif turns:
            for block in content:
                turns[-1][1].extend([block["text"]] if "text" in block else tools_of([block]))
    return turns
