"""Files of a prompt in the format of the AI SDK."""

from base64 import b64decode
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from typing import Any

import ai

from .contract import File
from .files import FORMATS, TEXT_TYPES
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


def media_types_in(messages: Iterable[Message]) -> set[str]:
    """Return the media types of the files in messages, also in the results of tools."""
    return {part.media_type for part in _flat(messages) if part.kind == "file"}


def sendable(messages: Iterable[Message], accepted: Collection[str]) -> list[Message]:
    """Return messages whose files the model accepts, also in the results of tools.

    A note replaces each file of another type, each file that the session store has lost, and all
    documents but the last MAX_DOCUMENTS.
    """
    messages = [*messages]
    if not _have_files(messages):
        return messages

    def note_for(part: Any) -> str:
        """Return what replaces a file that cannot be sent, or an empty string."""
        if part.kind != "file":
            return ""
        if part.media_type in FORMATS and part.media_type not in accepted:
            return f"[A file of type {part.media_type}, which this model does not accept]"
        return "" if part.data else LOST

    def is_document(part: Any) -> bool:
        is_file = part.kind == "file" and not part.media_type.startswith(("image/", "text/"))
        return is_file and not note_for(part)

    excess = sum(map(is_document, _flat(messages))) - MAX_DOCUMENTS

    def change(part: Any) -> Any:
        nonlocal excess
        if note := note_for(part):
            return ai.messages.TextPart(text=note)
        if is_document(part):
            excess -= 1
            if excess >= 0:
                note = f"[The document {part.filename}, which is no longer sent]"
                return ai.messages.TextPart(text=note)
        return part

    return [_map_files(message, change) for message in messages]


def with_texts(messages: Iterable[Message]) -> list[Message]:
    """Turn text files into text parts, because not every vendor accepts text files."""
    messages = [*messages]
    if not _have_files(messages):
        return messages

    def change(part: Any) -> Any:
        if part.kind != "file" or part.media_type not in TEXT_TYPES:
            return part
        text = _bytes_of(part.data).decode(errors="replace")
        return ai.messages.TextPart(text=f"{part.filename or 'file'}:\n{text}")

    return [_map_files(message, change) for message in messages]


def _have_files(messages: Iterable[Message]) -> bool:
    return any(part.kind == "file" for part in _flat(messages))


def _flat(messages: Iterable[Message]) -> Iterator[Any]:
    """Yield the parts of messages, and those of a tool's result instead of the result."""
    for message in messages:
        for part in message.parts:
            if content := _content_of(part):
                yield from content.value
            else:
                yield part


def _content_of(part: Any) -> ai.messages.ContentOutput | None:
    """Return the parts of a tool's result, as the model gets them, or None."""
    value = part.get_model_input() if part.kind == "tool_result" else None
    return value if isinstance(value, ai.messages.ContentOutput) else None


def _map_files(message: Message, change: Callable[[Any], Any]) -> Message:
    """Return a message in which `change` has replaced parts, if it has files."""
    if not _have_files([message]):
        return message

    def change_all(part: Any) -> Any:
        content = _content_of(part)
        if not content:
            return change(part)
        changed = ai.messages.ContentOutput(value=[*map(change, content.value)])
        return part.model_copy(update={"model_input": changed, "model_input_kind": "special"})

    return message.model_copy(update={"parts": [*map(change_all, message.parts)]})
