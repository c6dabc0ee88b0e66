"""From what a user brings to what may be kept and sent: bounded in size and time, and without secrets.

Only a picture or a document in which no secret was found is kept as it came; of anything else its redacted text is
kept alone.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import os
import re
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote_to_bytes

from chatbot.attachments import extract
from chatbot.attachments.kinds import DOCUMENTS, SUFFIXES, TEXT, decoded, is_image, media_type, pixels
from chatbot.attachments.links import Link, named
from chatbot.redaction import redact
from chatbot.stores.errors import InvalidValue

LARGEST = 20 << 20
"""Bytes of one attachment."""
MOST_PIXELS = 100_000_000
"""Of a picture, which whoever decodes it has to make room for."""
MOST = 10
"""Attachments of one message."""
_WALL_S = 2.0 * extract.LONGEST_S
"""Seconds that reading a document may take, on a busy machine too."""
_READERS = threading.BoundedSemaphore(2)
"""Readers at a time, each of which may take a gigabyte: messages of many people may bring documents at once."""
_INHERITED = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT")
"""Variables that a reader needs; keys are none of its business."""


@dataclass(frozen=True, slots=True)
class Upload:
    """A file as a user brings it."""

    name: str
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file that was read. `data` is empty where only its text may be kept, `text` is None for a picture."""

    name: str
    media: str
    size: int
    data: bytes = field(repr=False)
    text: str | None = field(default=None, repr=False)
    redacted: tuple[str, ...] = ()
    """Kinds of the secrets that were taken out of the text."""
    is_cut: bool = False
    """True if the document goes on after its text."""

    @property
    def is_image(self) -> bool:
        """Return whether it is a picture."""
        return is_image(self.media)

    @property
    def blobs(self) -> list[tuple[bytes, str]]:
        """The bytes to keep, with their suffixes: the file, then its text where that is another."""
        parts = [(self.data, SUFFIXES[self.media])] if self.data else []
        return parts if self.text is None else [*parts, (self.text.encode(), SUFFIXES[TEXT])]

    def link(self, blobs: Sequence[str]) -> Link:
        """Return its link, given the names of its `blobs`."""
        return Link(self.name, blobs[0], "" if self.is_image else blobs[-1])


def uploaded(name: str) -> Upload:
    """Read a file that the user named. Raises `InvalidValue` for one that cannot be read, or is too large. Blocking."""
    path = file_named(name)
    if path is None:
        raise InvalidValue(f"file not found: {name!r:.200}")
    try:
        _check_size(path.name, path.stat().st_size)
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except OSError as error:
        raise InvalidValue(f"{str(path)!r} cannot be read: {error.strerror or error}") from error
    _check_size(path.name, len(data))
    return Upload(path.name, data)


def file_named(name: str) -> Path | None:
    """Return the path of the file of that name; None where there is none, or where nothing can be called so."""
    try:
        path = Path(name).expanduser()
        return path if path.is_file() else None
    except (OSError, ValueError, RuntimeError):  # too long, or the home of an unknown user
        return None


async def read_all(uploads: Sequence[Upload]) -> list[Attachment]:
    """Read what is to be attached to one message. Raises `InvalidValue`, naming the file."""
    if len(uploads) > MOST:
        raise InvalidValue(f"{len(uploads)} files are too many for one message: attach at most {MOST}")
    return [await asyncio.to_thread(read, upload) for upload in uploads]


def read(upload: Upload) -> Attachment:
    """Read one file. Blocking: at most a minute."""
    name = named(upload.name) or "file"
    _check_size(name, len(upload.data))
    media = media_type(upload.data)
    if media is None or not upload.data:
        what = (
            "is empty" if not upload.data else "is neither text, PDF, DOCX or ODT, nor a PNG, JPEG, GIF or WebP picture"
        )
        raise InvalidValue(f"{name} {what}: attach another file, or convert it first")
    if is_image(media):
        if pixels(upload.data) > MOST_PIXELS:
            raise InvalidValue(f"{name} claims more than {MOST_PIXELS // 10**6} megapixels: attach a smaller picture")
        return Attachment(name, media, len(upload.data), upload.data)
    text = _text_of(name, upload.data, media) if media in DOCUMENTS else decoded(upload.data) or ""
    kept, secrets = redact(text[: extract.LONGEST_TEXT])
    original = upload.data if media in DOCUMENTS and not secrets else b""
    is_cut = len(text) >= extract.LONGEST_TEXT
    return Attachment(name, media, len(upload.data), original, kept, secrets, is_cut)


def _text_of(name: str, data: bytes, media: str) -> str:
    kind = SUFFIXES[media].removeprefix(".")
    try:
        with _READERS:
            done = _extracted(data, kind)
    except subprocess.TimeoutExpired:
        raise InvalidValue(f"{name} could not be read within {_WALL_S:g} s: attach the pages that matter") from None
    if done.returncode == extract.ENCRYPTED:
        raise InvalidValue(f"{name} is encrypted: save it without its password, and attach that")
    if done.returncode:
        raise InvalidValue(f"{name} cannot be read as {kind.upper()}: it is damaged, or takes too much time or memory")
    text = done.stdout.decode("utf-8", "replace").replace("\0", "").strip()
    if not text:
        raise InvalidValue(f"{name} holds no text, only pictures of it: attach its pages as pictures")
    return text


def _extracted(data: bytes, kind: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-P", extract.__file__, kind],
        input=data,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        timeout=_WALL_S,
        check=False,
        env={each: os.environ[each] for each in _INHERITED if each in os.environ},
    )


def _check_size(name: str, size: int) -> None:
    if size > LARGEST:
        raise InvalidValue(f"{name} has {size:,} bytes: attach at most {LARGEST:,}")


_URL = re.compile(r"data:([a-z0-9.+/-]*)((?:;[^,;]*)*),(.*)", re.IGNORECASE | re.DOTALL)


def upload_of(name: str, url: str) -> Upload:
    """Return the file in a `data:` URL. Raises `InvalidValue` for anything else."""
    found = _URL.fullmatch(url)
    if not found:
        raise InvalidValue(f"{name}: a file must be sent along, as data:…;base64,…: nothing is fetched from elsewhere")
    if not found[2].lower().endswith(";base64"):
        return Upload(name, unquote_to_bytes(found[3]))
    try:
        return Upload(name, base64.b64decode("".join(found[3].split()), validate=True))
    except (binascii.Error, ValueError) as error:
        raise InvalidValue(f"{name}: the data: URL is not valid base64") from error


def picture_of(number: int, url: str) -> Upload:
    """Return the picture in a `data:` URL under a name of its own."""
    media = url[5:].partition(";")[0].lower()
    return upload_of(f"picture-{number}{SUFFIXES.get(media, '')}", url)
