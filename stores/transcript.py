r"""The transcript format, as pure functions between entries and bytes.

    ### user — 2026-01-02T03:04:05.678901Z (7 bytes)
    <blank line>
    content
    <blank line>

The length of the content, as it is in the file, tells an entry that was cut off from a whole one; what a person writes
needs none. It counts at the end of the file only, and only where a write could have been interrupted there: at a page
of the disk, or without a blank line. So whoever shortens the last entry by hand need not count.

An entry starts only at a line with the form of a header. A line of content that starts like one gets a leading
backslash when written, which is removed when read. So no content can forge an entry, not even one torn in the middle of
a line, and every content is read back unchanged. Lines end only at `\n`. Text above the first header belongs to no
entry and stays.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import NamedTuple

from chatbot.stores.records import TranscriptEntry, format_time

_TIME = rb"[1-9]\d{3}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])T(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,6})?Z"
_ROLE = rb"[a-z][a-z0-9_-]{0,31}"
_MARK = b"### "
_REST = rb"(" + _ROLE + rb") \xe2\x80\x94 (" + _TIME + rb")"
_LENGTH = rb"(?: \((\d{1,12}) bytes\))?"
_BEGINNING = _MARK + _REST
_HEADER = re.compile(_MARK + rb"(?<![^\n]" + _MARK + rb")" + _REST + _LENGTH + rb"[ \t]*(\r?)$", re.MULTILINE)
"""A header at the beginning of a line. Starting with the mark, and not with ^, makes the search four times faster."""
_LOOKALIKE = re.compile(rb"^\\*" + _BEGINNING, re.MULTILINE)
_ESCAPED = re.compile(rb"^\\(\\*" + _BEGINNING + rb")", re.MULTILINE)
_TORN_HEADER = re.compile(
    rb"(?:^|\n)(#{1,3}|### ?|### " + _ROLE + rb" ?|"
    rb"### " + _ROLE + rb" \xe2(?:\x80(?:\x94(?: [0-9T:.-]*Z?(?: (?:\([0-9]*(?: [bytes]*\)?)?)?)?)?)?)?)\Z"
)
_BLANK = b"\n\n"
_BARE_HEADER = b" bytes)" + _BLANK
_PAGE_BYTES = 4096
"""A write that is interrupted, by a kill or a power cut, ends at a page: this size or a multiple of it."""
_Utf8Decoder = codecs.getincrementaldecoder("utf-8")
_LAST_DAY_OF_ANY_MONTH = 28


class Block(NamedTuple):
    """Position of one entry in the bytes: its header starts at `start`, its body is `[body, end)`."""

    start: int
    body: int
    end: int
    role: str
    at: datetime
    crlf: bool


def render(entries: Iterable[TranscriptEntry]) -> bytes:
    """The entries as the bytes to append to a transcript that ends with a blank line, or is empty."""
    return b"".join(map(_render_one, entries))


def parse(data: bytes, last: int | None = None) -> list[TranscriptEntry]:
    """Return the entries in `data`, or the last few. Bytes before the first header are skipped."""
    return [entry_of(data, block) for block in blocks(data, last)]


def blocks(data: bytes, last: int | None = None) -> list[Block]:
    """Return the positions of the entries, or of the last few, without decoding them."""
    headers = list(_HEADER.finditer(data))
    if last is not None:
        headers = headers[max(0, len(headers) - last) :]
    ends = [header.start() for header in headers[1:]] + [len(data)]
    return [
        Block(
            start=header.start(),
            body=min(header.end() + 1, end),
            end=end,
            role=header[1].decode(),
            at=_moment(header[2].decode()),
            crlf=bool(header[4]),
        )
        for header, end in zip(headers, ends, strict=False)  # no header, no end
    ]


def entry_of(data: bytes, block: Block) -> TranscriptEntry:
    """Decode the entry at `block`. Bytes that are not UTF-8 (never written here) become U+FFFD."""
    body = data[block.body : block.end]
    if block.crlf:
        body = body.replace(b"\r\n", b"\n")
    body = body.removeprefix(b"\n")
    body = body.removesuffix(b"\n").removesuffix(b"\n")
    if _MARK in body:
        body = _ESCAPED.sub(rb"\1", body)
    return TranscriptEntry(block.role, body.decode(errors="replace"), block.at)


def starts(data: bytes) -> list[int]:
    """Return the starts of entries in `data`; much faster than parsing them."""
    return [header.start() for header in _HEADER.finditer(data)]


def roles(data: bytes) -> list[str]:
    """The roles of the entries in `data`, in order; much cheaper than reading them."""
    return [header[1].decode() for header in _HEADER.finditer(data)]


def mend(tail: bytes, size: int | None = None) -> tuple[int, bytes]:
    """Return how to repair a transcript that ends in `tail`: the number of bytes to cut off, then the bytes to add.

    `size` is that of the whole transcript; None where `tail` is all of it.

    A kill or a power cut can leave zeros, half a character, half a header or half an entry at the end, none of which
    was acknowledged. `(0, b"")` means that the end is valid, and all of `tail` that more of the file is needed.
    """
    size = len(tail) if size is None else size
    if tail.endswith(_BLANK) and not tail.endswith(_BARE_HEADER) and size % _PAGE_BYTES:
        return 0, b""
    sound = tail.rstrip(b"\0")
    is_part = len(tail) < size
    headers = list(_HEADER.finditer(sound, int(is_part)))  # at the start of a part, it could be the middle of a line
    if is_part and not headers:
        return len(tail), b""
    left = _left(sound, headers[-1]) if headers and headers[-1][3] else -1
    if left > len(_BLANK):
        sound, left = sound[: headers[-1].start()], 0
    elif left < 0:
        sound = sound[: len(sound) - _torn_character(sound)]
        if torn := _TORN_HEADER.search(sound):
            sound = sound[: torn.start(1)]
        left = 0 if not sound else 2 - min(2, len(sound) - len(sound.rstrip(b"\n")))
    return len(tail) - len(sound), b"\n" * left


def _left(data: bytes, header: re.Match[bytes]) -> int:
    """Return how many bytes of the last entry, whose header has its length, are missing at the end of `data`."""
    return 2 * len(_BLANK) + int(header[3]) - (len(data) - header.end())


def _render_one(entry: TranscriptEntry) -> bytes:
    body = entry.content.encode()
    if _MARK in body:
        body = _LOOKALIKE.sub(rb"\\\g<0>", body)
    header = f"### {entry.role} — {format_time(entry.at)} ({len(body)} bytes)\n\n".encode()
    return header + body + b"\n\n"


def _moment(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except ValueError:  # 30 February, written by hand
        return datetime.fromisoformat(f"{text[:8]}{_LAST_DAY_OF_ANY_MONTH}{text[10:]}").astimezone(UTC)


def _torn_character(data: bytes) -> int:
    """Return the length of an incomplete UTF-8 character at the end."""
    decoder = _Utf8Decoder(errors="replace")
    decoder.decode(data[-4:])
    return len(decoder.getstate()[0])
