"""Files of every kind that an agent accepts, and files that it must refuse."""

import struct
import zipfile
import zlib
from base64 import b64encode
from io import BytesIO
from typing import Any

DOCX_TYPE = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"


def png(width: int = 2, height: int = 2) -> bytes:
    """A PNG of this size; its pixels are missing if it is large."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    pixels = zlib.compress(bytes((1 + 3 * width) * height if width * height < 10_000 else 1))
    chunks = [(b"IHDR", header), (b"IDAT", pixels), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*chunk) for chunk in chunks)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def jpeg(width: int = 2, height: int = 2, start: int = 0xC0) -> bytes:
    """The head of a JPEG with this size, after an APP0 segment and padding."""
    app0 = b"\xff\xe0\x00\x10JFIF\x00\x01\x01\x00\x00\x01\x00\x01\x00\x00"
    frame = struct.pack(">BBHBHHB", 0xFF, start, 11, 8, height, width, 1) + b"\x01\x11\x00"
    return b"\xff\xd8" + app0 + b"\xff" + frame + b"\xff\xd9"


def gif(width: int = 2, height: int = 2) -> bytes:
    return b"GIF89a" + struct.pack("<HH", width, height) + b"\x00\x00\x00;"


def webp(width: int = 2, height: int = 2, kind: bytes = b"VP8X") -> bytes:
    """A WebP of one of its three kinds."""
    if kind == b"VP8X":
        body = bytes(4) + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    elif kind == b"VP8L":
        body = b"\x2f" + (width - 1 | (height - 1) << 14).to_bytes(4, "little")
    else:
        body = b"\x00\x00\x00\x9d\x01\x2a" + struct.pack("<HH", width, height)
    chunk = kind + struct.pack("<I", len(body)) + body
    return b"RIFF" + struct.pack("<I", 4 + len(chunk)) + b"WEBP" + chunk


def archive(*names: str) -> bytes:
    """A zip file with these empty entries."""
    memory = BytesIO()
    with zipfile.ZipFile(memory, "w") as written:
        for name in names:
            written.writestr(name, "")
    return memory.getvalue()


PDF = b"%PDF-1.4\n%%EOF\n"
DOCX = archive("[Content_Types].xml", "word/document.xml")

Sample = tuple[str, str, bytes]  # name, media type, content
ACCEPTED: list[Sample] = [
    ("a.png", "image/png", png()),
    ("largest.png", "image/png", png(8000, 8000)),
    ("a.jpg", "image/jpeg", jpeg()),
    ("progressive.jpg", "image/jpeg", jpeg(start=0xC2)),
    ("a.gif", "image/gif", gif()),
    ("a.webp", "image/webp", webp()),
    ("lossless.webp", "image/webp", webp(kind=b"VP8L")),
    ("lossy.webp", "image/webp", webp(kind=b"VP8 ")),
    ("a.pdf", "application/pdf", PDF),
    ("a.docx", DOCX_TYPE, DOCX),
    ("a.txt", "text/plain", "Grüße\n".encode()),
    ("a.csv", "text/csv", b"a,b\r\n1,2\r\n"),
    ("a.md", "text/markdown", b"# Title\n"),
    ("form feed.txt", "text/plain; charset=utf-8", b"a\x0cb"),
    ("mark.txt", "text/plain", b"\xef\xbb\xbfa"),
    ("largest.pdf", "application/pdf", PDF + bytes(range(256)) * 17_500),
]
REFUSED: list[Sample] = [
    ("lie.png", "image/png", jpeg()),
    ("lie.jpg", "image/jpeg", png()),
    ("lie.pdf", "application/pdf", png()),
    ("lie.txt", "text/plain", png()),
    ("lie.docx", DOCX_TYPE, PDF),
    ("page.png", "image/png", b"<script>alert(1)</script>"),
    ("wide.png", "image/png", png(8001, 1)),
    ("bomb.png", "image/png", png(2**31, 2**31)),
    ("flat.png", "image/png", png(0, 5)),
    ("tall.jpg", "image/jpeg", jpeg(1, 60_000)),
    ("wide.gif", "image/gif", gif(65_535, 1)),
    ("wide.webp", "image/webp", webp(16_383, 1)),
    ("wide2.webp", "image/webp", webp(16_383, 1, b"VP8L")),
    ("wide3.webp", "image/webp", webp(16_383, 1, b"VP8 ")),
    ("unknown.webp", "image/webp", webp(kind=b"VP8 ").replace(b"VP8 ", b"VP9 ")),
    ("cut.png", "image/png", png()[:18]),
    ("cut.jpg", "image/jpeg", jpeg()[:24]),
    ("cut.gif", "image/gif", gif()[:7]),
    ("cut.webp", "image/webp", webp()[:20]),
    ("endless.jpg", "image/jpeg", b"\xff\xd8" + b"\xff" * 4_000_000),
    ("both.png", "image/png", png() + archive("a")),
    ("both.gif", "image/gif", gif() + b"%PDF-1.4"),
    ("a.zip", "application/zip", archive("a")),
    ("sheet.docx", DOCX_TYPE, archive("xl/workbook.xml")),
    ("broken.docx", DOCX_TYPE, DOCX[:40]),
    ("names.docx", DOCX_TYPE, b"PK\x03\x04 " + b"PK\x05\x06 word/document.xml"),
    ("empty.txt", "text/plain", b""),
    ("blank.txt", "text/plain", b"\xef\xbb\xbf \r\n"),
    ("empty.png", "image/png", b""),
    ("binary.txt", "text/plain", b"a\x00b"),
    ("latin1.txt", "text/plain", b"gr\xfc\xdfe"),
    ("page.html", "text/html", b"<p>"),
    ("photo.svg", "image/svg+xml", b"<svg/>"),
    ("photo.bmp", "image/bmp", b"BM"),
    ("clip.mp4", "video/mp4", b"\x00\x00\x00\x18ftypmp42"),
    ("no type", "", b"a"),
]


def sent(name: str, media_type: str, content: bytes) -> dict[str, Any]:
    """A file in the form of POST /invocations."""
    data = b64encode(content).decode()
    return {"media_type": media_type, "name": name, "data": data}
