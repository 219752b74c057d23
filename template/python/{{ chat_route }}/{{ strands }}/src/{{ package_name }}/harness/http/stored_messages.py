"""Reads stored messages of Strands Agents for a page."""

from typing import Any

from ..contract import StoredChunk
from ..turn import tools_in


def read_turns(messages: list[Any]) -> list[tuple[str, list[StoredChunk]]]:
    """Return the prompt and the chunks of each turn."""
    turns = list[tuple[str, list[StoredChunk]]]()
    for message in messages:
        content = message["content"]
        if message["role"] == "user" and "text" in content[0]:
            turns.append(("".join(block.get("text", "") for block in content), []))
        elif turns:
            for block in content:
                is_text = "text" in block
                turns[-1][1].extend([block["text"]] if is_text else tools_in(block, message))
    return turns
