"""Files of a prompt in the format of Strands Agents."""

import re
from base64 import urlsafe_b64decode
from collections.abc import Collection, Iterator
from typing import Any

from .contract import File
from .files import FORMATS, TEXT_TYPES
from .models.file_types import MAX_DOCUMENTS

LOST = "[A file that the session store has lost]"
MAX_NAME = 180  # characters; Bedrock accepts 200
TEXT_FORMATS = {FORMATS[media_type] for media_type in TEXT_TYPES}
MEDIA_TYPES = {name: media_type for media_type, name in FORMATS.items()}


def to_parts(files: Collection[File]) -> list[Any]:
    """Return the content blocks of files."""
    return [_to_block(file) for file in files]


def _to_block(file: File) -> dict[str, Any]:
    fields: dict[str, Any] = {"format": FORMATS[file.media_type], "source": {"bytes": file.data}}
    if file.is_image:
        return {"image": fields}
    # Bedrock accepts these characters, and no runs of spaces.
    name = re.sub(r"[^A-Za-z0-9()\[\] -]+", "-", file.name.removesuffix(f".{fields['format']}"))
    return {"document": {"name": re.sub(" +", " ", name).strip(" -") or "file", **fields}}


def files_in(message: Any) -> list[File]:
    """Return the files in the content of a message, or of a tool's result."""
    return [file for block in message["content"] if (file := _file_in(block))]


def _file_in(block: Any) -> File | None:
    fields = block.get("image") or block.get("document")
    if not fields or fields["format"] not in MEDIA_TYPES:
        return None
    data = fields["source"].get("bytes", b"")
    try:
        content = urlsafe_b64decode(data) if isinstance(data, str) else data
    except ValueError:  # stored by a tool
        return None
    name = f"{fields['name']}.{fields['format']}" if "name" in fields else ""
    return File(MEDIA_TYPES[fields["format"]], content, name)


def media_types_in(messages: list[Any]) -> set[str]:
    """Return the media types of the files in messages, also in the results of tools."""
    fields = [block.get("image") or block.get("document") for block in _flat(messages)]
    return {MEDIA_TYPES.get(it["format"], "") for it in fields if it}


def sendable(messages: list[Any], accepted: Collection[str]) -> list[Any]:
    """Return messages whose files the model accepts, also in the results of tools.

    Texts become text blocks. A note replaces each file of another type, each file that the session
    store has lost, and all documents but the last MAX_DOCUMENTS. Documents get different names,
    which Bedrock requires.
    """
    sender = _Sender(accepted)
    sender.excess = sum(map(sender.is_document, _flat(messages))) - MAX_DOCUMENTS
    return [
        {**message, "content": [*map(sender.convert, message["content"])]}
        if any("image" in block or "document" in block for block in _flat([message]))
        else message
        for message in messages
    ]


def _flat(messages: list[Any]) -> Iterator[Any]:
    """Yield the blocks of messages, and those of a tool's result instead of the result."""
    for message in messages:
        for block in message["content"]:
            yield from block["toolResult"]["content"] if "toolResult" in block else [block]


class _Sender:
    """Converts the blocks of one request; the first `excess` documents become notes."""

    def __init__(self, accepted: Collection[str]) -> None:
        self.excess = 0
        self._accepted = accepted
        self._names = set[str]()

    def is_document(self, block: Any) -> bool:
        """Whether a block is a document that the model accepts, and no text."""
        is_text = "document" in block and block["document"]["format"] in TEXT_FORMATS
        return "document" in block and not is_text and not self._note(block)

    def convert(self, block: Any) -> Any:
        """Return a block that the model accepts."""
        if result := block.get("toolResult"):
            content = [*map(self.convert, result["content"])]
            return {"toolResult": {**result, "content": content}}
        if note := self._note(block):
            return {"text": note}
        if "document" not in block:
            return block
        fields = block["document"]
        if fields["format"] in TEXT_FORMATS and "bytes" in fields["source"]:
            text = fields["source"]["bytes"].decode(errors="replace")
            return {"text": f"{fields['name']}.{fields['format']}:\n{text}"}
        self.excess -= 1
        if self.excess >= 0:
            return {"text": f"[The document {fields['name']}, which is no longer sent]"}
        return {"document": {**fields, "name": self._new_name(fields["name"])}}

    def _note(self, block: Any) -> str:
        """Return what replaces a file that cannot be sent, or an empty string."""
        fields = block.get("image") or block.get("document")
        if not fields:
            return ""
        media_type = MEDIA_TYPES.get(fields["format"])
        if media_type is not None and media_type not in self._accepted:
            return f"[A file of type {media_type}, which this model does not accept]"
        return LOST if fields["source"].get("bytes") == b"" else ""

    def _new_name(self, name: str) -> str:
        new = name[:MAX_NAME]
        number = 1
        while new in self._names:
            number += 1
            new = f"{name[:MAX_NAME]} {number}"
        self._names.add(new)
        return new
