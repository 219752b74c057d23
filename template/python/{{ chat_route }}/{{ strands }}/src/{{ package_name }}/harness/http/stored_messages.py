"""Reads stored messages of Strands Agents for a page."""

from typing import Any

from ..contract import File, StoredChunk
from ..file_parts import files_in
from ..turn import tools_in


def read_turns(messages: list[Any]) -> list[tuple[str, list[File], list[StoredChunk]]]:
    """Return the prompt, its files and the chunks of each turn."""
    turns = list[tuple[str, list[File], list[StoredChunk]]]()
    for message in messages:
        content = message["content"]
        if message["role"] == "user" and "text" in content[0]:
            prompt = "".join(block.get("text", "") for block in content)
            turns.append((prompt, files_in(message), []))
        elif turns:
            for block in content:
                is_text = "text" in block
                turns[-1][2].extend([block["text"]] if is_text else tools_in(block, message))
    return turns
