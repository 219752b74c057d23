"""Files of a prompt in the format of Strands Agents."""

import re
from base64 import urlsafe_b64decode
from collections.abc import Collection
from typing import Any

from .contract import File
from .files import FORMATS

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
    """Return messages in which a note replaces each file that the model does not accept.

    Documents get different names, which Bedrock requires.
    """
    names = set[str]()
    return [
        {**message, "content": [_sendable(block, accepted, names) for block in message["content"]]}
        if any("image" in block or "document" in block for block in message["content"])
        else message
        for message in messages
    ]


def _sendable(block: Any, accepted: Collection[str], names: set[str]) -> Any:
    fields = block.get("image") or block.get("document")
    if not fields:
        return block
    media_type = MEDIA_TYPES.get(fields["format"])
    if media_type is not None and media_type not in accepted:
        return {"text": f"[A file of type {media_type}, which this model does not accept]"}
    if "document" not in block:
        return block
    name = fields["name"]
    number = 1
    while name in names:
        number += 1
        name = f"{fields['name']} {number}"
    names.add(name)
    return {"document": {**fields, "name": name}}
