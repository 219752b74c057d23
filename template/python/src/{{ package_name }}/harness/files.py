"""Files of a prompt: their limits, and their types by content."""

import re
from base64 import b64decode
from collections.abc import Collection, Sequence
from pathlib import Path
from struct import error as struct_error
from struct import unpack_from

from .contract import AgentError, File, FileUrl, is_blank, well_formed
from .log import describe
from .settings import CoreSettings

DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
# The media types that a caller can send, with the names of their formats.
FORMATS = {
    "image/png": "png",
    "image/jpeg": "jpeg",
    "image/gif": "gif",
    "image/webp": "webp",
    "application/pdf": "pdf",
    DOCX: "docx",
    "text/plain": "txt",
    "text/csv": "csv",
    "text/markdown": "md",
}
# All vendors accept these types.
COMMON_TYPES = tuple(media_type for media_type in FORMATS if media_type != DOCX)
TEXT_TYPES = frozenset(media_type for media_type in FORMATS if media_type.startswith("text/"))
# Anthropic and Bedrock reject images with a longer side.
MAX_PIXELS = 8000
PDF_MARK = b"%PDF-"
PDF_MARK_PLACE = 1024  # PDF readers look for the mark in these first bytes
ZIP_END = b"PK\x05\x06"
ZIP_END_PLACE = 22 + 65_535  # the end record and its comment


def check_files(files: Sequence[File], accepted: Collection[str], settings: CoreSettings) -> None:
    """Check the files of a prompt, by their content; skip files that are not yet fetched.

    `accepted` are the media types that the model accepts. Raises AgentError: `payload_too_large`
    above MAX_FILES or MAX_FILE_BYTES, `unsupported_file`.
    """
    check_count(len(files), settings)
    for file in files:
        if isinstance(file, FileUrl):
            continue
        if len(file.data) > settings.max_file_bytes:
            raise too_large(file.label, settings)
        if file.media_type not in FORMATS:
            raise unsupported(f"{file.label} has the type {file.media_type[:100]}", accepted)
        found = find_type(file.data)
        is_text = found == "text/plain" and file.media_type in TEXT_TYPES
        if found != file.media_type and not is_text:
            what = f"{file.label} contains {found or 'unknown data'}, not {file.media_type}"
            raise unsupported(what, accepted)
        if file.media_type not in accepted:
            raise unsupported(f"The model does not accept {file.media_type}", accepted)
        if file.is_image:
            _check_image(file)


def _check_image(file: File) -> None:
    size = find_size(file.data)
    if not size or not all(size):
        raise AgentError("unsupported_file", f"{file.label} is a damaged image.")
    if max(size) > MAX_PIXELS:
        what = f"{file.label} has {size[0]} x {size[1]} pixels"
        raise AgentError("unsupported_file", f"{what}: send at most {MAX_PIXELS} per side.")
    is_pdf = PDF_MARK in file.data[:PDF_MARK_PLACE]
    if is_pdf or ZIP_END in file.data[-ZIP_END_PLACE:]:
        raise AgentError("unsupported_file", f"{file.label} is an image and another file.")


def unsupported(reason: str, accepted: Collection[str]) -> AgentError:
    """Return the error for a type that is not accepted."""
    advice = f"Send one of: {', '.join(accepted)}." if accepted else "Send no files."
    return AgentError("unsupported_file", f"{reason}. {advice}")


def read_files(value: object, settings: CoreSettings) -> tuple[File, ...]:
    """Read the `files` of a request; `check_files` checks them. Raises AgentError.

    Those of a form are `File`s.
    """
    if not isinstance(value, list):
        raise AgentError("invalid_request", "Send files as a list.")
    check_count(len(value), settings)
    return tuple(_read_file(item, settings) for item in value)


def check_count(count: int, settings: CoreSettings) -> None:
    """Raise `payload_too_large` for more than MAX_FILES files."""
    if count > settings.max_files:
        message = f"Send at most {settings.max_files} files with a prompt."
        raise AgentError("payload_too_large", message)


def _read_file(item: object, settings: CoreSettings) -> File:
    if isinstance(item, File):
        return item
    fields = item if isinstance(item, dict) else {}
    name = fields.get("name", "")
    data = fields.get("data")
    url = fields.get("url")
    media_type = fields.get("media_type", "" if "url" in fields else None)
    if isinstance(media_type, str) and isinstance(name, str):
        if isinstance(data, str) and "url" not in fields:
            return decode_file(media_type, data, name, settings)
        if isinstance(url, str) and "data" not in fields:
            return FileUrl(media_type=plain_type(media_type), name=name, url=url)
    message = "Send each file as {media_type, name, data}, with its data in base64, or as {url}."
    raise AgentError("invalid_request", message)


def decode_file(media_type: str, data: str, name: str, settings: CoreSettings) -> File:
    """Return a file from its base64. Raises AgentError."""
    media_type = plain_type(media_type)
    label = File(media_type, b"", name).label
    if len(data) > (settings.max_file_bytes + 2) // 3 * 4:
        raise too_large(label, settings)
    try:
        content = b64decode(data, validate=True)
    except ValueError:
        raise AgentError("invalid_request", f"The data of {label} is not base64.") from None
    return File(media_type, content, name)


def plain_type(media_type: str) -> str:
    """Return a media type in lower case, without parameters, such as the charset of browsers."""
    return well_formed(media_type.split(";")[0].strip().lower())


def too_large(label: str, settings: CoreSettings) -> AgentError:
    """Return the error for a file above MAX_FILE_BYTES."""
    what = f"{label} is larger than {settings.max_file_bytes} bytes."
    return AgentError("payload_too_large", what)


def read_path(path: Path, settings: CoreSettings) -> File:
    """Read a file of the user; its content and extension decide its type. Raises AgentError."""
    try:
        path = path.expanduser()
        if not path.is_file():
            reason = "It is not a file." if path.exists() else "There is no such file."
            raise AgentError("invalid_request", f"Cannot read {path}: {reason}")
        if path.stat().st_size > settings.max_file_bytes:
            raise too_large(path.name, settings)
        data = path.read_bytes()
    except (OSError, RuntimeError, ValueError) as error:  # also of `expanduser`
        message = f"Cannot read {path}: {describe(error)}."
        raise AgentError("invalid_request", message) from None
    types = {"csv": "text/csv", "md": "text/markdown"}
    media_type = find_type(data)
    if media_type == "text/plain":
        media_type = types.get(path.suffix.lower().removeprefix("."), media_type)
    return File(media_type or "application/octet-stream", data, path.name)


def find_type(data: bytes) -> str:
    """Return the media type of the content, or "". The type of any text is text/plain."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "image/webp"
    if data.startswith(PDF_MARK):
        return "application/pdf"
    if data.startswith(b"PK\x03\x04"):
        # The names of a zip file's entries are at its end.
        is_docx = data.rfind(b"word/document.xml") < data.rfind(ZIP_END)
        return DOCX if is_docx and b"word/document.xml" in data else ""
    return "text/plain" if _is_text(data) else ""


def _is_text(data: bytes) -> bool:
    try:
        text = data.decode()
    except ValueError:
        return False
    return not is_blank(text) and re.search(r"[\x00-\x08\x0e-\x1f\x7f]", text) is None


def find_size(data: bytes) -> tuple[int, int] | None:
    """Return the width and height of an image in pixels, or None."""
    try:
        if data.startswith(b"\x89PNG"):
            width, height = unpack_from(">II", data, 16)
            return width, height
        if data.startswith(b"GIF"):
            width, height = unpack_from("<HH", data, 6)
            return width, height
        if data.startswith(b"RIFF"):
            return _size_of_webp(data)
        return _size_of_jpeg(data)
    except struct_error:  # the file is too short
        return None


def _size_of_webp(data: bytes) -> tuple[int, int] | None:
    kind = data[12:16]
    if kind == b"VP8X":
        width, width_high, height, height_high = unpack_from("<HBHB", data, 24)
        return (width_high << 16 | width) + 1, (height_high << 16 | height) + 1
    if kind == b"VP8L":
        (bits,) = unpack_from("<I", data, 21)
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8 ":
        width, height = unpack_from("<HH", data, 26)
        return width & 0x3FFF, height & 0x3FFF
    return None


def _size_of_jpeg(data: bytes) -> tuple[int, int] | None:
    """Return the size in the first frame header."""
    place = 2
    while data[place : place + 1] == b"\xff":
        (marker,) = unpack_from("B", data, place + 1)
        if marker == 0xFF:
            place = len(data) - len(data[place:].lstrip(b"\xff")) - 1  # after the padding
            continue
        if 0xC0 <= marker <= 0xCF and marker not in {0xC4, 0xC8, 0xCC}:
            height, width = unpack_from(">HH", data, place + 5)
            return width, height
        (length,) = unpack_from(">H", data, place + 2)
        place += 2 + length
    return None
