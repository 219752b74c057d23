"""Reads forms: bodies of the type multipart/form-data (RFC 7578)."""

import re

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from ..contract import AgentError, File, escape_invisible
from ..files import plain_type
from ..settings import CoreSettings

FORM_TYPE = "multipart/form-data"
BOUNDARY = rb"[ -~]{1,70}"  # RFC 2046, 5.1.1
MAX_FIELDS = 32  # of a form, in addition to its files


class _Part:
    """A part of a form: its headers with lower-case names, and its content."""

    def __init__(self) -> None:
        self.headers: dict[bytes, bytes] = {}
        self.data = bytearray()


class _Reader:
    """Collects the parts of a form. The parser reports each header as a whole."""

    def __init__(self) -> None:
        self.parts: list[_Part] = []
        self.is_complete = False
        self.header = b""

    def read(self, body: bytes, boundary: bytes) -> None:
        """Read a whole form. Raises FormParserError."""
        parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self.begin_part,
                "on_header_field": self.read_header,
                "on_header_value": self.read_value,
                "on_part_data": self.read_data,
                "on_end": self.end,
            },
        )
        parser.write(body)

    def begin_part(self) -> None:
        self.parts.append(_Part())

    def read_header(self, body: bytes, start: int, end: int) -> None:
        self.header = body[start:end].lower()

    def read_value(self, body: bytes, start: int, end: int) -> None:
        self.parts[-1].headers[self.header] = body[start:end]

    def read_data(self, body: bytes, start: int, end: int) -> None:
        self.parts[-1].data += body[start:end]

    def end(self) -> None:
        self.is_complete = True


def is_form(content_type: str) -> bool:
    """Whether a Content-Type is that of a form."""
    return plain_type(content_type) == FORM_TYPE


def read_form(
    body: bytes, content_type: str, settings: CoreSettings
) -> tuple[dict[str, bytes], list[File]]:
    """Return the values of the fields of a form, and its files. Raises AgentError."""
    _, options = parse_options_header(content_type)
    boundary = options.get(b"boundary", b"")
    if not re.fullmatch(BOUNDARY, boundary):
        message = "Send the boundary of the form, 1 to 70 characters, in its Content-Type."
        raise AgentError("invalid_request", message)
    max_parts = settings.max_files + MAX_FIELDS
    # Count first: the parser is slow for a body that consists of boundaries.
    if body.count(b"\r\n--" + boundary) > max_parts:
        raise AgentError("invalid_request", f"Send at most {max_parts} parts in a form.")
    reader = _Reader()
    try:
        reader.read(body, boundary)
    except FormParserError:
        raise _invalid() from None
    if not reader.is_complete:
        raise _invalid()
    fields: dict[str, bytes] = {}
    files: list[File] = []
    for part in reader.parts:
        name, file_name = _names_of(part)
        if file_name is None:
            if name in fields:
                raise _repeated(name)
            fields[name] = bytes(part.data)
        elif name == "files":
            sent_type = part.headers.get(b"content-type", b"text/plain").decode("latin-1")
            files.append(File(plain_type(sent_type), bytes(part.data), file_name))
        else:
            message = f'Send a file in the field "files", not {label(name)}.'
            raise AgentError("invalid_request", message)
    if files and "files" in fields:
        raise _repeated("files")
    return fields, files


def label(name: str) -> str:
    """Return the name of a field for messages."""
    return f'"{escape_invisible(name[:100])}"'


def _names_of(part: _Part) -> tuple[str, str | None]:
    """Return the names of a part's field and of its file."""
    _, options = parse_options_header(part.headers.get(b"content-disposition"))
    try:
        name = options[b"name"].decode()
        file_name = options[b"filename"].decode() if b"filename" in options else None
    except (KeyError, UnicodeDecodeError):
        message = "Each part of a form needs a Content-Disposition with a name in UTF-8."
        raise AgentError("invalid_request", message) from None
    return name, file_name


def _invalid() -> AgentError:
    message = "The form is invalid or incomplete: send multipart/form-data as RFC 7578 defines it."
    return AgentError("invalid_request", message)


def _repeated(name: str) -> AgentError:
    return AgentError("invalid_request", f"Send the field {label(name)} only once.")
