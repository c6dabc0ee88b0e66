"""Reading of attached files: bounded in size and time, and without secrets.

A file is recognised by its content, as its name proves nothing. Only a picture, or a document in which no secret was
found, is stored unchanged; of any other file only the redacted text is stored.
"""

import asyncio
import base64
import codecs
import math
import os
import re
import struct
import subprocess
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from urllib.parse import unquote_to_bytes

from chatbot.attachments import DOCX, ODT, PDF, SUFFIXES, TEXT, Link, extract, is_image, link_name
from chatbot.stores.errors import InvalidValue
from chatbot.stores.text.redaction import redact

LARGEST = 20 << 20
"""Maximum bytes of one attachment."""
MOST_PIXELS = 100_000_000
"""Maximum pixels of a picture: a decoder allocates memory for all of them."""
MOST_FILES = 10
"""Maximum attachments of one message."""
_WALL_S = 2.0 * extract.LONGEST_S
"""Maximum seconds for reading a document, even on a busy machine."""
_READERS = ThreadPoolExecutor(2, "read documents")
"""Threads for documents: the reader of each may take a gigabyte, and many people may send documents at once."""
_THREADS = ThreadPoolExecutor(thread_name_prefix="read attachments")
"""Threads for other files, which need not wait for documents; those of `asyncio.to_thread` stay free for stores."""
_INHERITED = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
"""Environment variables that a reader gets; others, such as keys, are withheld."""
_DOCUMENTS = (PDF, DOCX, ODT)
"""Kinds whose text is extracted by a process of its own."""
_14_BITS = 0x3FFF
_MARKER = 0xFF
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""JPEG segments that contain the picture's size."""
_ZIP = b"PK\x03\x04"
_JPEG = b"\xff\xd8\xff"
_GIF = b"GIF8"
_PDF_WITHIN = 1024
"""Number of bytes at the beginning of a file that are searched for the mark of a PDF."""
_BEGINNINGS = {b"\x89PNG\r\n\x1a\n": "image/png", _JPEG: "image/jpeg", _GIF: "image/gif"}


@dataclass(frozen=True, slots=True)
class Upload:
    """A file from a user, not checked yet."""

    name: str
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file that was read. `data` is empty if only its text may be stored, `text` is None for a picture."""

    name: str
    media: str
    size: int
    data: bytes = field(repr=False)
    text: str | None = field(default=None, repr=False)
    redacted: tuple[str, ...] = ()
    is_cut: bool = False
    """True if `text` is only the beginning of the document."""

    @property
    def blobs(self) -> list[tuple[bytes, str]]:
        """The blobs to store, with suffixes: the file if it may be stored, then its text if it has one."""
        parts = [(self.data, SUFFIXES[self.media])] if self.data else []
        return parts if self.text is None else [*parts, (self.text.encode(), SUFFIXES[TEXT])]

    def link(self, blobs: Sequence[str]) -> Link:
        """Return its link, given the names of its `blobs`."""
        return Link(self.name, blobs[0], "" if is_image(self.media) else blobs[-1])


def check_size(name: str, size: int) -> None:
    """Raise `InvalidValue` for an attachment that is too large."""
    if size > LARGEST:
        raise InvalidValue(f"{name} has {size:,} bytes: attach at most {LARGEST:,}")


async def read_all(uploads: Sequence[Upload]) -> list[Attachment]:
    """Read the files to attach to one message. Raises `InvalidValue`, naming the file."""
    if len(uploads) > MOST_FILES:
        raise InvalidValue(f"{len(uploads)} files are too many for one message: attach at most {MOST_FILES}")
    loop = asyncio.get_running_loop()
    found: list[Attachment] = []
    for upload in uploads:
        is_slow = _is_pdf(upload.data) or upload.data.startswith(_ZIP)
        found.append(await loop.run_in_executor(_READERS if is_slow else _THREADS, read_upload, upload))
    return found


def read_upload(upload: Upload) -> Attachment:
    """Read one file. Blocking."""
    name = link_name(upload.name) or "file"
    check_size(name, len(upload.data))
    media = media_type(upload.data)
    if media is None:
        raise InvalidValue(
            f"{name} is neither text, PDF, DOCX or ODT, nor a PNG, JPEG, GIF or WebP picture: "
            "attach another file, or convert it first"
        )
    if is_image(media):
        if math.prod(_sides(upload.data)) > MOST_PIXELS:
            raise InvalidValue(f"{name} claims more than {MOST_PIXELS // 10**6} megapixels: attach a smaller picture")
        return Attachment(name, media, len(upload.data), upload.data)
    text = _text_of(name, upload.data, media) if media in _DOCUMENTS else _decoded(upload.data) or ""
    if not text.strip():
        raise InvalidValue(f"{name} is empty: attach another file")
    is_cut = len(text) > extract.LONGEST_TEXT
    text = text[: extract.LONGEST_TEXT]
    kept, secrets = redact(text.strip() if media in _DOCUMENTS else text)
    original = upload.data if media in _DOCUMENTS and not secrets else b""
    return Attachment(name, media, len(upload.data), original, kept, secrets, is_cut)


def media_type(data: bytes) -> str | None:
    """Return the media type of a file; None if it can be neither shown to a model nor read."""
    for beginning, media in _BEGINNINGS.items():
        if data.startswith(beginning):
            return media
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "image/webp"
    if _is_pdf(data):
        return PDF
    if data.startswith(_ZIP):
        return _office(data)
    return None if _decoded(data) is None else TEXT


def _is_pdf(data: bytes) -> bool:
    return b"%PDF-" in data[:_PDF_WITHIN]


def _sides(picture: bytes) -> Iterable[int]:
    """Return the sides that a picture claims to have, in pixels; 0 if they cannot be read."""
    head = picture[:30].ljust(30, b"\0")
    if head.startswith(_GIF):
        return struct.unpack_from("<HH", head, 6)
    chunk = b"" if head.startswith(_JPEG) else head[12:16]
    if chunk == b"IHDR":
        return struct.unpack_from(">II", head, 16)
    if chunk == b"VP8X":
        return [1 + int.from_bytes(head[at : at + 3], "little") for at in (24, 27)]
    if chunk == b"VP8L":
        return [1 + (int.from_bytes(head[21:25], "little") >> by & _14_BITS) for by in (0, 14)]
    if chunk == b"VP8 ":
        return [side & _14_BITS for side in struct.unpack_from("<HH", head, 26)]
    return _jpeg_sides(picture)


def _jpeg_sides(picture: bytes) -> tuple[int, int]:
    """Return the sides in the frame's segment, not those of an embedded picture, such as a camera's preview."""
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


def _decoded(data: bytes) -> str | None:
    """Return text in UTF-8, or in UTF-16 with its mark; None for anything else."""
    is_utf16 = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        text = data.decode("utf-16" if is_utf16 else "utf-8-sig")
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


def _text_of(name: str, data: bytes, media: str) -> str:
    kind = SUFFIXES[media].removeprefix(".")
    try:
        done = subprocess.run(  # noqa: S603 - our own program
            [sys.executable, "-P", extract.__file__, kind],
            input=data,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_WALL_S,
            check=False,
            env={each: os.environ[each] for each in _INHERITED if each in os.environ},
        )
    except subprocess.TimeoutExpired:
        raise InvalidValue(f"{name} could not be read within {_WALL_S:g} s: attach the pages that matter") from None
    if done.returncode == extract.ENCRYPTED:
        raise InvalidValue(f"{name} is encrypted: save it without its password, and attach that")
    if done.returncode:
        raise InvalidValue(f"{name} cannot be read as {kind.upper()}: it is damaged, or takes too much time or memory")
    text = done.stdout.decode("utf-8", "replace")
    if not text.strip():
        raise InvalidValue(f"{name} contains no text: if its pages are pictures, attach those")
    return text


def upload_of(name: str, url: str) -> Upload:
    """Return the file in a `data:` URL. Raises `InvalidValue` for anything else."""
    found = re.fullmatch(r"(?is)data:[a-z0-9.+/-]*((?:;[^,;]*)*),(.*)", url)
    if not found:
        raise InvalidValue(f"{name}: send the file itself, as data:…;base64,…: nothing is fetched from elsewhere")
    is_base64 = found[1].lower().endswith(";base64")
    try:
        if is_base64:
            return Upload(name, base64.b64decode("".join(found[2].split()), validate=True))
        return Upload(name, unquote_to_bytes(found[2]))
    except ValueError as error:
        raise InvalidValue(f"{name}: the data: URL is not valid {'base64' if is_base64 else 'text'}") from error
