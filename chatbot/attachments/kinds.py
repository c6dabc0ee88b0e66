"""Kinds of files that can be attached, recognised by their content; what a file is called proves nothing."""

from __future__ import annotations

import codecs
import struct
from collections.abc import Iterable

PDF = "application/pdf"
DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
ODT = "application/vnd.oasis.opendocument.text"
TEXT = "text/plain"
SUFFIXES = {
    "image/png": ".png",
    "image/jpeg": ".jpg",
    "image/gif": ".gif",
    "image/webp": ".webp",
    PDF: ".pdf",
    DOCX: ".docx",
    ODT: ".odt",
    TEXT: ".txt",
}
"""Suffixes of kept files by media type. HTML and SVG are text like any other: nothing opens them as a page."""
MEDIA_TYPES = {suffix: media for media, suffix in SUFFIXES.items()}
_BEGINNINGS = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif"}
DOCUMENTS = (PDF, DOCX, ODT)
"""Kinds whose text is taken out by a program of its own."""
_14_BITS = 0x3FFF
_MARKER = 0xFF
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""Segments of a JPEG that say how large it is."""
_ZIP = b"PK\x03\x04"
_PDF_WITHIN = 1024
"""Bytes among which the mark of a PDF may stand."""


def media_type(data: bytes) -> str | None:
    """Return the media type of a file; None where it can be neither shown to a model nor read."""
    for beginning, media in _BEGINNINGS.items():
        if data.startswith(beginning):
            return media
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "image/webp"
    if b"%PDF-" in data[:_PDF_WITHIN]:
        return PDF
    if data.startswith(_ZIP):
        return _office(data)
    return None if decoded(data) is None else TEXT


def pixels(picture: bytes) -> int:
    """Return how many pixels a picture claims to have; 0 where it says nothing that can be read."""
    wide, high = _sides(picture)
    return wide * high


def _sides(picture: bytes) -> Iterable[int]:
    head = picture[:30].ljust(30, b"\0")
    if head[12:16] == b"IHDR":
        return struct.unpack_from(">II", head, 16)
    if head.startswith(b"GIF8"):
        return struct.unpack_from("<HH", head, 6)
    if head[12:16] == b"VP8X":
        return [1 + int.from_bytes(head[at : at + 3], "little") for at in (24, 27)]
    if head[12:16] == b"VP8L":
        return [1 + (int.from_bytes(head[21:25], "little") >> by & _14_BITS) for by in (0, 14)]
    if head[12:16] == b"VP8 ":
        return [side & _14_BITS for side in struct.unpack_from("<HH", head, 26)]
    return _jpeg_sides(picture)


def _jpeg_sides(picture: bytes) -> tuple[int, int]:
    """Walk over the segments to the one of the frame: pictures inside of others, as of a camera, do not count."""
    at = 2
    while at + 9 <= len(picture) and picture[at] == _MARKER:
        kind = picture[at + 1]
        if kind in _FRAMES:
            high, wide = struct.unpack_from(">HH", picture, at + 5)
            return wide, high
        at += 1 if kind == _MARKER else 2 + int.from_bytes(picture[at + 2 : at + 4], "big")
    return 0, 0


def _office(archive: bytes) -> str | None:
    """Return the kind of an office document by the names in its archive, which is not unpacked."""
    if archive[30:38] == b"mimetype" and archive[38:].startswith(ODT.encode()):
        return ODT
    return DOCX if b"word/document.xml" in archive and b"[Content_Types].xml" in archive else None


def media_of(blob: str) -> str:
    """Return the media type of a kept file, by the suffix of its name."""
    return MEDIA_TYPES.get(blob[32:], "application/octet-stream")


def is_image(media: str) -> bool:
    """Return whether a model would look at it, not read it."""
    return media.startswith("image/")


def decoded(data: bytes) -> str | None:
    """Return text in UTF-8, or in UTF-16 with its mark; None for anything else."""
    is_utf16 = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        text = data.decode("utf-16" if is_utf16 else "utf-8-sig")
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text
