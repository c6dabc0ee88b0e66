r"""Transcript of a session: its format, as pure functions, and its file, which appends durably and keeps to a cap.

    ### user — 2026-01-02T03:04:05.678901Z (7 bytes)
    <blank line>
    content
    <blank line>

The length of the content shows whether the last entry was cut off; an entry written by hand needs none. It is only
compared where a killed write can end: at a multiple of 4,096 bytes, right after a header, or without a blank line. So a
person may shorten the last entry and leave its length.

Only a line with the form of a header starts an entry. A line of content that looks like one gets a leading backslash
when written, which is removed when read: no content can forge an entry, not even if a kill cuts it in the middle of a
line. Lines end only at `\n`. Text above the first header belongs to no entry and stays.
"""

import codecs
import logging
import re
import time
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from chatbot.stores.errors import DamagedFile, MissingFolder, StoreBusy
from chatbot.stores.files import LOCK_TIMEOUT_S, LONGEST_ENTRY, Folder, Stamp, locked, opened, stamp
from chatbot.stores.records import ROLE, TranscriptEntry, format_time

logger = logging.getLogger(__name__)

_TIME = rb"[1-9]\d{3}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])T(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,6})?Z"
_ROLE = ROLE.pattern.encode()
_MARK = b"### "
_BOM = codecs.BOM_UTF8
_REST = rb"(" + _ROLE + rb") \xe2\x80\x94 (" + _TIME + rb")"
_LENGTH = rb"(?: \((\d{1,12}) bytes\))?"
_BEGINNING = b"(?:" + _BOM + b")?" + _MARK + _REST
_AT_LINE_START = rb"(?:(?<![^\n]" + _MARK + rb")|(?<=\A" + _BOM + _MARK + rb"))"
_HEADER = re.compile(_MARK + _AT_LINE_START + _REST + _LENGTH + rb"[ \t]*(\r?)$", re.MULTILINE)
"""A header at the beginning of a line, also after a byte order mark, which an editor may add at the beginning of the
file. Starting with the mark, and not with ^, makes the search four times faster."""
_LOOKALIKE = re.compile(rb"^\\*" + _BEGINNING, re.MULTILINE)
_ESCAPED = re.compile(rb"^\\(\\*" + _BEGINNING + rb")", re.MULTILINE)
_TORN_HEADER = re.compile(
    rb"(?:^|\n)(#{1,3}|### ?|### " + _ROLE + rb" ?|"
    rb"### " + _ROLE + rb" \xe2(?:\x80(?:\x94(?: [0-9T:.-]*Z?(?: (?:\([0-9]*(?: [bytes]*\)?)?)?)?)?)?)?)\Z"
)
_BLANK = b"\n\n"
"""The end of a line and a blank one, after a header and after the content."""
_BARE_HEADER = b" bytes)" + _BLANK
"""The end of a transcript of which only the last header was written."""
_PAGE_BYTES = 4096
"""An interrupted write ends at a multiple of this."""
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
    """Return the entries as bytes to append to a transcript that is empty or ends with a blank line."""
    return b"".join(map(_render_one, entries))


def parse(data: bytes) -> list[TranscriptEntry]:
    """Return the entries in `data`. Bytes before the first header are skipped."""
    return [entry_of(data, block) for block in blocks(data)]


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
        for header, end in zip(headers, ends, strict=False)  # without headers, `ends` has one more
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


def mend(tail: bytes, size: int | None = None) -> tuple[int, bytes]:
    """Return how to repair a transcript that ends in `tail`: the number of bytes to cut off, then the bytes to add.

    `size` is that of the whole transcript; None if `tail` is all of it.

    A kill or a power cut can leave zeros, half a character, half a header or half an entry at the end, none of which
    was acknowledged. `(0, b"")` means that the end is valid. To cut off all of a part, call it with a longer one.
    """
    size = len(tail) if size is None else size
    if tail.endswith(_BLANK) and not tail.endswith(_BARE_HEADER) and size % _PAGE_BYTES:
        return 0, b""
    kept = tail.rstrip(b"\0")
    is_part = len(tail) < size
    headers = list(_HEADER.finditer(kept, int(is_part)))  # at the start of a part, it could be the middle of a line
    if is_part and not headers:
        return len(tail), b""
    lacking = -1  # unknown; else the bytes that the last entry lacks, by the length in its header
    if headers and headers[-1][3]:
        lacking = 2 * len(_BLANK) + int(headers[-1][3]) - (len(kept) - headers[-1].end())
    if lacking > len(_BLANK):  # part of its content, too: the entry was never acknowledged
        kept, lacking = kept[: headers[-1].start()], 0
    elif lacking < 0:  # it was written by hand, or its text was edited
        kept = kept[: len(kept) - _torn_character(kept)]
        if torn := _TORN_HEADER.search(kept):
            kept = kept[: torn.start(1)]
        lacking = 0 if not kept else 2 - min(2, len(kept) - len(kept.rstrip(b"\n")))
    return len(tail) - len(kept), b"\n" * lacking


def _torn_character(data: bytes) -> int:
    """Return the length of an incomplete UTF-8 character at the end."""
    decoder = _Utf8Decoder(errors="replace")
    decoder.decode(data[-4:])
    return len(decoder.getstate()[0])


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


NAME = "transcript.md"
ARCHIVE_NAME = "transcript.archive.md"
_DRAFT = re.compile(r"\.transcript\.compaction-(\d+)\.tmp")
"""Name of a draft of the transcript, with the length of the archive before the compaction."""
_FIRST_TAIL_BYTES = 16 * 1024
_PAUSE_S = 0.001
_STEADY_S = 0.1
"""Seconds without a change after which no write is running."""


def last_time(folder: Folder) -> datetime | None:
    """Return the time of the last entry, or of the file's last change if earlier; None without an entry."""
    if (now := folder.stamp(NAME)) is not None:
        for reach in (_FIRST_TAIL_BYTES, LONGEST_ENTRY):
            if found := blocks(folder.read(NAME, max(0, now.size - reach)), 1):
                return min(found[0].at, datetime.fromtimestamp(now.mtime_ns / 1e9, UTC))
    return None


class TranscriptFile:
    """The last `cap` entries, and at most half as many more, are in `transcript.md`, older ones in the archive."""

    def __init__(self, folder: Path, cap: int) -> None:
        self._folder = folder
        self._path = folder / NAME
        self._cap = cap
        self._slack = cap // 2
        self._valid_end: Stamp | None = None
        self._counted = (0, 0, 0)  # inode, bytes, entries
        self._cached: tuple[Stamp, list[TranscriptEntry], bool] | None = None

    def write(self, batches: Sequence[Sequence[TranscriptEntry]]) -> bool:
        """Append the entries of all batches in order. Durable on return; returns True if `compact` is due."""
        data = b"".join(map(render, batches))
        with locked(self._folder) as folder, folder.open_to_append(NAME, mend=mend, known=self._valid_end) as file:
            entries = self._count(folder, file.status.st_ino, file.status.st_size) + sum(map(len, batches))
            file.write(data)
            self._valid_end = now = file.stamp()
            self._counted = (now.inode, now.size, entries)
            folder.unlock()
            file.sync()
        return entries > self._cap + self._slack

    def glance_last(self, n: int) -> list[TranscriptEntry] | None:
        """Return the result of `read_last` if it is cached, or one short read is enough; else None. Never waits."""
        n = max(0, n)
        if self._cached is not None:
            known, entries, whole = self._cached
            if stamp(self._path) == known and (len(entries) >= n or whole):
                return entries[-n:] if n else []
        return self._read_tail(n, _FIRST_TAIL_BYTES, may_wait=False)

    def read_last(self, n: int) -> list[TranscriptEntry]:
        """Return the last `n` entries, oldest first, from the end of the file and, if it has fewer, the archive."""
        reach = 4 * _FIRST_TAIL_BYTES  # `glance_last` has read less
        while (entries := self._read_tail(max(0, n), reach, may_wait=True)) is None:
            reach *= 4
        return entries

    def read_all(self) -> list[TranscriptEntry]:
        """Return every entry, the archived ones first."""
        return [entry for part in self._read_parts() for entry in parse(part)]

    def count(self, roles: Collection[str] = ()) -> int:
        """Count the entries, archived ones included; with roles, only theirs."""
        headers = (header for part in self._read_parts() for header in _HEADER.finditer(part))
        return sum(not roles or header[1].decode() in roles for header in headers)

    def drop_last(self, n: int, instead: Sequence[TranscriptEntry] = ()) -> list[TranscriptEntry]:
        """Remove the last `n` entries, archived ones too, and return them; `instead` takes their place."""
        n = max(0, n)
        dropped: list[TranscriptEntry] = []
        with locked(self._folder) as folder:
            self._undo_killed_compaction(folder)
            for name in (NAME, ARCHIVE_NAME):
                if n > len(dropped) or instead:
                    dropped = _cut_last(folder, name, n - len(dropped), render(instead)) + dropped
                    instead = ()
            if n > len(dropped):  # more than there are: also delete what was cut off and set aside
                for name in folder.names():
                    if name.startswith(f"{NAME}.damaged-"):
                        folder.remove(name)
        return dropped

    def _read_tail(self, n: int, reach: int, *, may_wait: bool) -> list[TranscriptEntry] | None:
        """Return the last `n` entries; None if more must be read, or, without `may_wait`, while they may change."""
        with opened(self._folder) as folder:
            before = folder.stamp(NAME)
            if before is None or n == 0:
                folder.check_there()
                return []
            is_settled = before.is_settled()
            offset = max(0, before.size - reach)
            data = folder.read(NAME, offset)
            if not _is_valid(data, offset):
                if not may_wait:
                    return None
                data = _read_steady(folder, offset)
            part = data[data.find(b"\n") if offset else 0 :]  # the rest of a cut line could look like a header
            found = blocks(part, last=n)
            if len(found) < n and offset:
                if reach >= LONGEST_ENTRY and not _HEADER.search(data[:LONGEST_ENTRY]):
                    raise DamagedFile(f"{self._path} is damaged: no entry begins in {LONGEST_ENTRY:,} bytes of it")
                return None
            has_archive = folder.stamp(ARCHIVE_NAME) is not None
            if len(found) < n and has_archive:
                return self.read_all()[-n:] if may_wait else None
            entries = [entry_of(part, each) for each in found]
            if is_settled and folder.stamp(NAME) == before:
                self._cached = (before, entries, len(entries) < n)
        return entries[:]

    def _read_parts(self) -> tuple[bytes, bytes]:
        """Return archive and transcript of one moment, without a lock: read again after a compaction in between."""
        give_up = time.monotonic() + LOCK_TIMEOUT_S
        while time.monotonic() < give_up:
            with opened(self._folder) as folder:
                before = _arrangement(folder)
                archive = _read_repaired(folder, ARCHIVE_NAME, end=next(iter(before[0].values()), None))
                data = _read_steady(folder)
                if _arrangement(folder) == before:
                    folder.check_there()
                    return archive, data
            time.sleep(_PAUSE_S)
        raise StoreBusy(
            f"{self._path} kept changing for {LOCK_TIMEOUT_S:g} s: another process is writing it; try again later"
        )

    def _count(self, folder: Folder, inode: int, size: int) -> int:
        """Count the entries in the file; only entries added by others since the last count are read."""
        counted_inode, counted_size, entries = self._counted
        if counted_inode != inode or counted_size > size:
            counted_size = entries = 0
        return entries if counted_size == size else entries + len(starts(folder.read(NAME, counted_size)))

    def compact(self) -> None:
        """Move entries above the cap to the archive. A failure changes nothing and can be tried again."""
        try:
            with locked(self._folder) as folder:
                self._undo_killed_compaction(folder)
                self._move_surplus(folder)
        except MissingFolder:
            return  # deleted or published meanwhile; the next append tries again
        except OSError as error:
            logger.warning("%s could not be compacted and stays whole: %s", self._path, error)

    def _move_surplus(self, folder: Folder) -> None:
        data = folder.read(NAME)
        headers = starts(data)
        if len(headers) <= self._cap:
            return
        begin, end = headers[0], headers[-self._cap]
        archive = folder.stamp(ARCHIVE_NAME)
        draft = f".transcript.compaction-{archive.size if archive else 0}.tmp"
        folder.create(draft, data[:begin] + data[end:])
        folder.sync()  # from here on a kill leaves the draft, which records the length of the archive
        folder.append(ARCHIVE_NAME, data[begin:end], mend=mend)
        folder.rename(draft, NAME)
        if now := folder.stamp(NAME):
            self._counted = (now.inode, now.size, self._cap)

    def _undo_killed_compaction(self, folder: Folder) -> None:
        for name, archive_end in _drafts(folder).items():
            if folder.stamp(ARCHIVE_NAME) is not None:
                folder.cut(ARCHIVE_NAME, archive_end)
            folder.remove(name)


def transcript_stamp(folder: Path) -> str:
    """Return a stamp that changes with the transcript; empty right after a change, or if it cannot be read."""
    try:
        stamps = [stamp(folder / name) for name in (NAME, ARCHIVE_NAME)]
    except OSError:
        return ""
    if not all(each is None or each.is_settled() for each in stamps):
        return ""
    return " ".join("-" if each is None else f"{each.inode}.{each.size}.{each.mtime_ns}" for each in stamps)


def _cut_last(folder: Folder, name: str, n: int, instead: bytes) -> list[TranscriptEntry]:
    data = _read_repaired(folder, name)
    cut = blocks(data, last=n)
    if instead:
        folder.replace(name, data[: cut[0].start if cut else len(data)] + instead)
    elif cut:
        folder.cut(name, cut[0].start)
    return [entry_of(data, block) for block in cut]


def _arrangement(folder: Folder) -> tuple[dict[str, int], int | None, Stamp | None]:
    """Return what a compaction changes: its draft, the file of the transcript, and the archive."""
    drafts, current = _drafts(folder), folder.stamp(NAME)
    return drafts, current.inode if current else None, folder.stamp(ARCHIVE_NAME)


def _drafts(folder: Folder) -> dict[str, int]:
    """Return the drafts of interrupted compactions, each with the length of the archive before it."""
    return {name: int(draft[1]) for name in folder.names() if (draft := _DRAFT.fullmatch(name))}


def _read_steady(folder: Folder, offset: int = 0) -> bytes:
    """Read the transcript while no write is running: an incomplete end was then torn or edited."""
    seen: Stamp | None = None
    since = time.monotonic()
    while True:
        now = folder.stamp(NAME)
        data = _read_raw(folder, NAME, offset)
        if _is_valid(data, offset):
            return data
        if now is not None and now == seen and (now.is_settled() or time.monotonic() - since > _STEADY_S):
            return _repaired(data, offset)
        if now != seen:
            seen, since = now, time.monotonic()
        time.sleep(_PAUSE_S)


def _read_raw(folder: Folder, name: str, offset: int = 0, end: int | None = None) -> bytes:
    try:
        return folder.read(name, offset, end)
    except FileNotFoundError:
        return b""


def _read_repaired(folder: Folder, name: str, end: int | None = None) -> bytes:
    """Return the file as repaired by the next append; empty if it does not exist."""
    return _repaired(_read_raw(folder, name, end=end))


def _is_valid(data: bytes, offset: int) -> bool:
    return not data or mend(data, offset + len(data)) == (0, b"")


def _repaired(data: bytes, offset: int = 0) -> bytes:
    """Return the bytes from `offset` to the end of a transcript as repaired by the next append."""
    cut, missing = mend(data, offset + len(data))
    return data[: len(data) - cut] + missing
