"""Files of a session, stored beside its snapshot; the snapshot has references to them.

A file's name is `<sha256>.<uuid7>`: the digest of its content, and the time of its upload. A
reference replaces the base64 text in the fields `bytes`, `data` and `image` of a snapshot:
`sha256:<name>`, or `sha256-url:<name>` for URL-safe base64.
"""

import re
import time
from base64 import b64encode, urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterable
from hashlib import sha256

from uuid_utils import uuid7

from .base import UUID7, Files

RENEWAL_SECONDS = 21_600  # an older file is uploaded again
MIN_CHARS = 512  # a shorter text stays in the snapshot
NAME = f"[0-9a-f]{{64}}\\.{UUID7}"
FIELD = r'("(?:bytes|data|image)"\s*:\s*")'
# In JSON, a quote inside a string has a backslash: these patterns match only fields.
CONTENT = re.compile(rf'{FIELD}([A-Za-z0-9+/_-]{{{MIN_CHARS},}}={{0,2}})"'.encode())
REFERENCE = re.compile(rf'{FIELD}(sha256(?:-url)?):({NAME})"'.encode())
# A text that looks like a reference gets one more "=": a reference has no "=".
LITERAL = re.compile(rf"{FIELD}(=*)(?=sha256(?:-url)?:)".encode())
ESCAPED = re.compile(rf"{FIELD}=(?==*sha256(?:-url)?:)".encode())
ENCODERS: dict[bytes, Callable[[bytes], bytes]] = {
    b"sha256": b64encode,
    b"sha256-url": urlsafe_b64encode,
}


def detach_files(snapshot: bytes, stored: Iterable[str]) -> tuple[bytes, Files]:
    """Replace the files in a snapshot by references; return the snapshot and the new files.

    `stored` are the names of the session's stored files. They stay, unless they are old: a store
    may expire each file by its time of upload, so an old file is new again.
    """
    names = {name.partition(".")[0]: name for name in stored if _is_recent(name)}
    files = dict[str, bytes]()

    def detach(match: re.Match[bytes]) -> bytes:
        field, text = match.groups()
        is_url_safe = b"-" in text or b"_" in text
        kind = b"sha256-url" if is_url_safe else b"sha256"
        content = urlsafe_b64decode(text) if len(text) % 4 == 0 else b""
        if ENCODERS[kind](content) != text:
            return match[0]
        digest = sha256(content).hexdigest()
        if digest not in names:
            names[digest] = f"{digest}.{uuid7()}"
            files[names[digest]] = content
        return field + kind + f':{names[digest]}"'.encode()

    return CONTENT.sub(detach, LITERAL.sub(rb"\1=\2", snapshot)), files


def attach_files(snapshot: bytes, files: Files) -> bytes:
    """Replace the references in a snapshot by the files; a missing file becomes an empty text."""

    def attach(match: re.Match[bytes]) -> bytes:
        field, kind, name = match.groups()
        return field + ENCODERS[kind](files.get(name.decode(), b"")) + b'"'

    return ESCAPED.sub(rb"\1", REFERENCE.sub(attach, snapshot))


def names_in(snapshot: bytes) -> list[str]:
    """Return the names of the files that a snapshot refers to."""
    return [*dict.fromkeys(match[3].decode() for match in REFERENCE.finditer(snapshot))]


def _is_recent(name: str) -> bool:
    uploaded_at = int(name[65:78].replace("-", ""), 16) / 1000  # the time in a UUIDv7
    return time.time() - uploaded_at < RENEWAL_SECONDS


def is_intact(name: str, content: bytes) -> bool:
    """Whether a file's content has the digest in its name."""
    return name.startswith(sha256(content).hexdigest())
