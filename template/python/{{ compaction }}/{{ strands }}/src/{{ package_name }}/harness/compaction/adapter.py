"""Converts messages of Strands Agents for summaries."""

from collections.abc import Iterable, Iterator
from typing import Any

from ..file_parts import files_in
from ..turn import tools_in
from .summary import Utterance


def read(messages: Iterable[Any]) -> Iterator[Utterance]:
    """Yield the texts, names of files, tool calls and tool results of stored messages."""
    for message in messages:
        for file in files_in(message):
            yield message["role"], f"[A file: {file.name or file.media_type}]"
        for block in message["content"]:
            if "text" in block:
                yield message["role"], block["text"]
            for chunk in tools_in(block, message):
                yield message["role"], chunk


def write(texts: Iterable[tuple[str, str]]) -> list[Any]:
    """Return texts as stored messages."""
    return [{"role": role, "content": [{"text": text}]} for role, text in texts]
