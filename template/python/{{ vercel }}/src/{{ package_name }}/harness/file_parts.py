"""Files of a prompt in the format of the AI SDK."""

from base64 import b64decode
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from typing import Any

import ai

from .contract import File
from .files import TEXT_TYPES
from .models.file_types import MAX_DOCUMENTS

LOST = "[A file that the session store has lost]"
Message = ai.messages.Message


def to_parts(files: Collection[File]) -> list[Any]:
    """Return the message parts of files."""
    return [_to_part(file) for file in files]


def _to_part(file: File) -> ai.messages.FilePart:
    return ai.messages.FilePart(
        data=file.data, media_type=file.media_type, filename=file.name or None
    )


def files_in(parts: Iterable[Any]) -> list[File]:
    """Return the files in the parts of a message, or of a tool's result."""
    files = []
    for part in parts:
        if isinstance(part, ai.messages.FilePart):
            with suppress(ValueError):  # a URL of a tool
                files.append(File(part.media_type, _bytes_of(part.data), part.filename or ""))
    return files


def _bytes_of(data: str | bytes) -> bytes:
    return b64decode(data, validate=True) if isinstance(data, str) else data


def sendable(messages: Iterable[Message], accepted: Collection[str]) -> list[Message]:
    """Return messages in which a note replaces each file that the model does not accept.

    A note also replaces all documents but the last MAX_DOCUMENTS.
    """
    messages = [*messages]
    excess = sum(map(_is_document, (part for it in messages for part in it.parts))) - MAX_DOCUMENTS

    def change(part: Any) -> Any:
        nonlocal excess
        if part.kind != "file":
            return part
        if part.media_type not in accepted:
            note = f"[A file of type {part.media_type}, which this model does not accept]"
            return ai.messages.TextPart(text=note)
        if not part.data:
            return ai.messages.TextPart(text=LOST)
        excess -= _is_document(part)
        if excess >= 0 and _is_document(part):
            note = f"[The document {part.filename}, which is no longer sent]"
            return ai.messages.TextPart(text=note)
        return part

    return [_map_files(message, change) for message in messages]


def _is_document(part: Any) -> bool:
    return part.kind == "file" and not part.media_type.startswith(("image/", "text/"))


def with_texts(messages: Iterable[Message]) -> list[Message]:
    """Turn text files into text parts, because not every vendor accepts text files."""

    def change(part: Any) -> Any:
        if part.kind != "file" or part.media_type not in TEXT_TYPES:
            return part
        text = _bytes_of(part.data).decode(errors="replace")
        return ai.messages.TextPart(text=f"{part.filename or 'file'}:\n{text}")

    return [_map_files(message, change) for message in messages]


def _map_files(message: Message, change: Callable[[Any], Any]) -> Message:
    """Return a message in which `change` has replaced parts, if it has files."""
    if not any(part.kind == "file" for part in message.parts):
        return message
    return message.model_copy(update={"parts": [*map(change, message.parts)]})
