"""Transcript of a session on the disk: durable appends, tail reads and the cap. Blocking."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

from chatbot.stores import transcript
from chatbot.stores.errors import MissingFolder, StoreBusy
from chatbot.stores.files import LOCK_TIMEOUT_S, Folder, Stamp, locked, opened, stamp
from chatbot.stores.open_folders import OpenFolders
from chatbot.stores.records import TranscriptEntry

logger = logging.getLogger(__name__)

NAME = "transcript.md"
ARCHIVE_NAME = "transcript.archive.md"
_DRAFT = ".transcript.compaction-"
_FIRST_TAIL_BYTES = 16 * 1024
_PAUSE_S = 0.001
_STEADY_S = 0.1


class TranscriptFile:
    """The last `cap` entries are in `transcript.md`, older ones in `transcript.archive.md`.

    The file may exceed the cap by a tenth before the oldest entries are moved; reads of more entries continue in the
    archive.
    """

    def __init__(self, folder: Path, cap: int, folders: OpenFolders | None = None) -> None:
        self._folder = folder
        self._folders = folders or OpenFolders()
        self._path = folder / NAME
        self._cap = cap
        self._slack = cap // 10
        self._sound: Stamp | None = None
        self._counted = (0, 0, 0)  # inode, bytes, entries
        self._cached: tuple[Stamp, list[TranscriptEntry], bool] | None = None

    def append(self, batches: Sequence[Sequence[TranscriptEntry]]) -> None:
        """Add the entries of all batches, in order, and keep the cap. Durable on return."""
        if self.write(batches):
            self.compact()

    def write(self, batches: Sequence[Sequence[TranscriptEntry]]) -> bool:
        """Append the entries of all batches in order. Durable on return; returns True if `compact` is due."""
        data = b"".join(map(transcript.render, batches))
        entries = 0

        def look(folder: Folder, now: Stamp) -> None:
            nonlocal entries
            self._sound = now
            entries = self._count(folder, now, data)

        self._folders.append(self._folder, NAME, data, mend=transcript.mend, known=self._sound, look=look)
        return entries > self._cap + self._slack

    def recall_last(self, n: int) -> list[TranscriptEntry] | None:
        """Return the result of `read_last` if it is cached; else None. Takes microseconds."""
        if self._cached is None:
            return None
        known, entries, whole = self._cached
        n = max(0, n)
        if stamp(self._path) != known or (len(entries) < n and not whole):
            return None
        return entries[-n:] if n else []

    def glance_last(self, n: int) -> list[TranscriptEntry] | None:
        """Return the result of `read_last` if one short read is enough; else None. Waits for no lock."""
        return self._look(max(0, n), _FIRST_TAIL_BYTES, may_wait=False)

    def read_last(self, n: int) -> list[TranscriptEntry]:
        """Return the last `n` entries, oldest first, from the end of the file and, if it has fewer, the archive."""
        n = max(0, n)
        reach = _FIRST_TAIL_BYTES
        while (entries := self._look(n, reach, may_wait=True)) is None:
            reach *= 4
        return entries

    def read_all(self) -> list[TranscriptEntry]:
        """Every entry, the archived ones first."""
        return [entry for part in self._read_parts() for entry in transcript.parse(part)]

    def count(self, roles: Collection[str] = ()) -> int:
        """Count the entries, archived ones included; with roles, only theirs."""
        return sum(not roles or role in roles for part in self._read_parts() for role in transcript.roles(part))

    def drop_last(self, n: int) -> list[TranscriptEntry]:
        """Remove the last `n` entries, archived ones too, and return them."""
        n = max(0, n)
        dropped: list[TranscriptEntry] = []
        with locked(self._folder) as folder:
            self._undo_killed_compaction(folder)
            for name in (NAME, ARCHIVE_NAME):
                if n > len(dropped):
                    dropped = _cut_last(folder, name, n - len(dropped)) + dropped
            if n > len(dropped):  # all of them: what was cut off and set aside goes along
                for name in folder.names():
                    if name.startswith(f"{NAME}.damaged-"):
                        folder.remove(name)
        return dropped

    def _look(self, n: int, reach: int, *, may_wait: bool) -> list[TranscriptEntry] | None:
        """Return the last `n` entries; None if they reach further back, or if that needs a lock."""
        with opened(self._folder) as folder:
            before = folder.stamp(NAME)
            if before is None or n == 0:
                folder.check_there()
                return []
            is_settled = before.is_settled()
            offset = max(0, before.size - reach)
            data = folder.read(NAME, offset)
            if not _is_sound(data, offset):
                if not may_wait:
                    return None
                data = _read_steady(folder, offset)
            entries = _last_entries(data, n, is_cut=offset > 0)
            if len(entries) < n and offset:
                return None
            has_archive = folder.stamp(ARCHIVE_NAME) is not None
            if len(entries) < n and has_archive:
                return self.read_all()[-n:] if may_wait else None
            if is_settled and folder.stamp(NAME) == before:
                self._cached = (before, entries, len(entries) < n)
        return entries[:]

    def _read_parts(self) -> tuple[bytes, bytes]:
        """The archive and the transcript as they were at one moment. Takes no lock: it is read again if it changed.

        Appends do not matter; a compaction, which moves entries from one file to the other, does.
        """
        give_up = time.monotonic() + LOCK_TIMEOUT_S
        while time.monotonic() < give_up:
            with opened(self._folder) as folder:
                before = _arrangement(folder)
                archive = _read_sound(folder, ARCHIVE_NAME, end=before.archive_end)
                data = _read_steady(folder)
                if _arrangement(folder) == before:
                    folder.check_there()
                    return archive, data
            time.sleep(_PAUSE_S)
        raise StoreBusy(
            f"{self._path} kept changing for {LOCK_TIMEOUT_S:g} s: another process is writing it; try again later"
        )

    def _count(self, folder: Folder, now: Stamp, written: bytes) -> int:
        """Count the entries in the file; only entries added by others since the last count are read."""
        inode, size, entries = self._counted
        if inode != now.inode or size > now.size:
            size = entries = 0
        added = written if size + len(written) == now.size else folder.read(NAME, size)
        entries += len(transcript.starts(added))
        self._counted = (now.inode, now.size, entries)
        return entries

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
        starts = transcript.starts(data)
        if len(starts) <= self._cap:
            return
        begin, end = starts[0], starts[-self._cap]
        archive = folder.stamp(ARCHIVE_NAME)
        draft = f"{_DRAFT}{archive.size if archive else 0}.tmp"
        folder.create(draft, data[:begin] + data[end:])
        folder.sync()  # from here on a kill leaves the draft, which records the length of the archive
        folder.append(ARCHIVE_NAME, data[begin:end], mend=transcript.mend)
        folder.rename(draft, NAME)
        if now := folder.stamp(NAME):
            self._counted = (now.inode, now.size, self._cap)

    def _undo_killed_compaction(self, folder: Folder) -> None:
        for name in folder.names():
            if name.startswith(_DRAFT):
                if folder.stamp(ARCHIVE_NAME) is not None:
                    folder.cut(ARCHIVE_NAME, _archive_end(name))
                folder.remove(name)


def transcript_stamp(folder: Path) -> str:
    """Return a stamp that changes with the transcript; empty while a change could go unnoticed."""
    stamps = [stamp(folder / name) for name in (NAME, ARCHIVE_NAME)]
    if not all(each is None or each.is_settled() for each in stamps):
        return ""
    return " ".join("-" if each is None else f"{each.inode}.{each.size}.{each.mtime_ns}" for each in stamps)


def _cut_last(folder: Folder, name: str, n: int) -> list[TranscriptEntry]:
    data = _read_sound(folder, name)
    blocks = transcript.blocks(data, last=n)
    if blocks:
        folder.cut(name, blocks[0].start)
    return [transcript.entry_of(data, block) for block in blocks]


def _last_entries(data: bytes, n: int, *, is_cut: bool) -> list[TranscriptEntry]:
    if is_cut:
        data = data[data.find(b"\n") + 1 :]  # the rest of a cut line could look like a header
    return transcript.parse(data, last=n)


class _Arrangement(NamedTuple):
    """The files with the entries. `archive_end` is the length of the archive before an interrupted compaction."""

    transcript: int | None
    archive: Stamp | None
    archive_end: int | None


def _arrangement(folder: Folder) -> _Arrangement:
    drafts = [name for name in folder.names() if name.startswith(_DRAFT)]
    current, archive = folder.stamp(NAME), folder.stamp(ARCHIVE_NAME)
    return _Arrangement(current.inode if current else None, archive, _archive_end(drafts[0]) if drafts else None)


def _archive_end(draft: str) -> int:
    return int(draft.removeprefix(_DRAFT).removesuffix(".tmp"))


def _read_steady(folder: Folder, offset: int = 0) -> bytes:
    """Read the transcript while no write is running: an incomplete end was then torn or edited."""
    seen: Stamp | None = None
    since = time.monotonic()
    while True:
        now = folder.stamp(NAME)
        data = _read_raw(folder, NAME, offset)
        if _is_sound(data, offset):
            return data
        if now is not None and now == seen and (now.is_settled() or time.monotonic() - since > _STEADY_S):
            return _sound(data, offset)
        if now != seen:
            seen, since = now, time.monotonic()
        time.sleep(_PAUSE_S)


def _read_raw(folder: Folder, name: str, offset: int = 0, end: int | None = None) -> bytes:
    try:
        return folder.read(name, offset, end)
    except FileNotFoundError:
        return b""


def _read_sound(folder: Folder, name: str, end: int | None = None) -> bytes:
    """Return the file as repaired by the next append; empty if it does not exist."""
    return _sound(_read_raw(folder, name, end=end))


def _is_sound(data: bytes, offset: int) -> bool:
    return not data or transcript.mend(data, offset + len(data)) == (0, b"")


def _sound(data: bytes, offset: int = 0) -> bytes:
    """Return the bytes from `offset` to the end of a transcript as repaired by the next append."""
    cut, missing = transcript.mend(data, offset + len(data))
    return data[: len(data) - cut] + missing
