"""Files of a prompt in the format of Strands Agents."""

import re
from base64 import urlsafe_b64decode
from collections.abc import Collection
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


def sendable(messages: list[Any], accepted: Collection[str]) -> list[Any]:
    """Return messages whose files the model accepts.

    Texts become text blocks. A note replaces each file of another type, and all documents but the
    last MAX_DOCUMENTS. Documents get different names, which Bedrock requires.
    """
    documents = sum(_is_document(block) for message in messages for block in message["content"])
    sender = _Sender(accepted, documents - MAX_DOCUMENTS)
    return [
        {**message, "content": [sender.convert(block) for block in message["content"]]}
        if any("image" in block or "document" in block for block in message["content"])
        else message
        for message in messages
    ]


def _is_document(block: Any) -> bool:
    return "document" in block and block["document"]["format"] not in TEXT_FORMATS


class _Sender:
    """Converts the blocks of one request; the first `excess` documents become notes."""

    def __init__(self, accepted: Collection[str], excess: int) -> None:
        self._accepted = accepted
        self._excess = excess
        self._names = set[str]()

    def convert(self, block: Any) -> Any:
        """Return a block that the model accepts."""
        fields = block.get("image") or block.get("document")
        if not fields:
            return block
        media_type = MEDIA_TYPES.get(fields["format"])
        if media_type is not None and media_type not in self._accepted:
            return {"text": f"[A file of type {media_type}, which this model does not accept]"}
        if fields["source"].get("bytes") == b"":
            return {"text": LOST}
        if "document" not in block:
            return block
        if fields["format"] in TEXT_FORMATS and "bytes" in fields["source"]:
            text = fields["source"]["bytes"].decode(errors="replace")
            return {"text": f"{fields['name']}.{fields['format']}:\n{text}"}
        self._excess -= 1
        if self._excess >= 0:
            return {"text": f"[The document {fields['name']}, which is no longer sent]"}
        return {"document": {**fields, "name": self._new_name(fields["name"])}}

    def _new_name(self, name: str) -> str:
        new = name[:MAX_NAME]
        number = 1
        while new in self._names:
            number += 1
            new = f"{name[:MAX_NAME]} {number}"
        self._names.add(new)
        return new
