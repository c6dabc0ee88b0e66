"""One session's transcript on the disk: durable appends, tail reads and the cap. Blocking; the format is elsewhere."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from pathlib import Path

from stores import transcript
from stores.errors import MissingFolder
from stores.files import Folder, Stamp, locked, opened, stamp
from stores.open_folders import OpenFolders
from stores.records import TranscriptEntry

logger = logging.getLogger(__name__)

NAME = "transcript.md"
ARCHIVE_NAME = "transcript.archive.md"
_DRAFT = ".transcript.compaction-"
_FIRST_TAIL_BYTES = 16 * 1024


class TranscriptFile:
    """The last `cap` entries stand in `transcript.md`, the older ones in `transcript.archive.md`.

    The file may hold a tenth more entries than the cap before the oldest are moved, but only `cap` are ever shown.
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
        """Add the entries of all batches, in order. Durable on return, which tells whether `compact` is due."""
        data = b"".join(map(transcript.render, batches))
        with (
            self._folders.locked(self._folder) as folder,
            folder.appending(NAME, mend=transcript.mend, known=self._sound) as file,
        ):
            file.write(data)
            self._sound = file.stamp()
            is_overfull = self._count(folder, self._sound, data) > self._cap + self._slack
            folder.unlock()
            file.sync()
        return is_overfull

    def recall_last(self, n: int) -> list[TranscriptEntry] | None:
        """What `read_last` would return, if that is known without reading; else None. Takes microseconds."""
        if self._cached is None:
            return None
        known, entries, whole = self._cached
        n = _within(n, self._cap)
        if stamp(self._path) != known or (len(entries) < n and not whole):
            return None
        return entries[-n:] if n else []

    def glance_last(self, n: int) -> list[TranscriptEntry] | None:
        """What `read_last` would return, if one short read tells; else None. Waits for no lock."""
        return self._look(_within(n, self._cap), _FIRST_TAIL_BYTES, may_wait=False)

    def read_last(self, n: int) -> list[TranscriptEntry]:
        """The last `n` entries within the cap, oldest first, read from the end of the file."""
        n = _within(n, self._cap)
        reach = _FIRST_TAIL_BYTES
        while (entries := self._look(n, reach, may_wait=True)) is None:
            reach *= 4
        return entries

    def read_all(self) -> list[TranscriptEntry]:
        """Every entry, the archived ones first."""
        with locked(self._folder) as folder:
            self._undo_killed_compaction(folder)
            parts = [_read_sound(folder, name) for name in (ARCHIVE_NAME, NAME)]
        return [entry for part in parts for entry in transcript.parse(part)]

    def count(self, roles: Collection[str] = ()) -> int:
        """How many entries there are, the archived ones included; where roles are named, how many of those."""
        with locked(self._folder) as folder:
            self._undo_killed_compaction(folder)
            parts = [_read_sound(folder, name) for name in (ARCHIVE_NAME, NAME)]
        return sum(not roles or role in roles for part in parts for role in transcript.roles(part))

    def drop_last(self, n: int) -> list[TranscriptEntry]:
        """Remove the last `n` entries within the cap, and return them."""
        n = _within(n, self._cap)
        dropped: list[TranscriptEntry] = []
        with locked(self._folder) as folder:
            self._undo_killed_compaction(folder)
            for name in (NAME, ARCHIVE_NAME):
                if n > len(dropped):
                    dropped = _cut_last(folder, name, n - len(dropped)) + dropped
        return dropped

    def _look(self, n: int, reach: int, *, may_wait: bool) -> list[TranscriptEntry] | None:
        """The last `n` entries, or None where they reach further back, or where we would have to wait for a lock."""
        with opened(self._folder) as folder:
            before = folder.stamp(NAME)
            if before is None or n == 0:
                return []
            is_settled = before.is_settled()
            offset = max(0, before.size - reach)
            data = folder.read(NAME, offset)
            if data and not data.endswith(b"\n\n"):
                if not may_wait:
                    return None
                data = self._read_alone(offset)
            entries = _last_entries(data, n, is_cut=offset > 0)
            if len(entries) < n and offset:
                return None
            has_archive = folder.stamp(ARCHIVE_NAME) is not None
            if len(entries) < n and has_archive:  # some were taken back, so the archive reaches into the cap again
                return self.read_all()[-n:] if may_wait else None
            if is_settled and folder.stamp(NAME) == before:
                self._cached = (before, entries, len(entries) < n)
        return entries[:]

    def _read_alone(self, offset: int) -> bytes:
        """Read while no one writes: what then still lacks its end was torn, or edited by hand."""
        with locked(self._folder) as folder:
            return _read_sound(folder, NAME, offset)

    def _count(self, folder: Folder, now: Stamp, written: bytes) -> int:
        """How many entries the file holds, reading only what others than `written` added since the last count."""
        inode, size, entries = self._counted
        if inode != now.inode or size > now.size:
            size = entries = 0
        added = written if size + len(written) == now.size else folder.read(NAME, size)
        entries += len(transcript.starts(added))
        self._counted = (now.inode, now.size, entries)
        return entries

    def compact(self) -> None:
        """Move what is past the cap to the archive. A failure leaves everything where it is, to be tried again."""
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
        folder.sync()  # from here on a kill leaves the draft, which tells how long the archive was
        folder.append(ARCHIVE_NAME, data[begin:end], mend=transcript.mend)
        folder.rename(draft, NAME)
        if now := folder.stamp(NAME):
            self._counted = (now.inode, now.size, self._cap)

    def _undo_killed_compaction(self, folder: Folder) -> None:
        for name in folder.names():
            if name.startswith(_DRAFT):
                if folder.stamp(ARCHIVE_NAME) is not None:
                    folder.cut(ARCHIVE_NAME, int(name.removeprefix(_DRAFT).removesuffix(".tmp")))
                folder.remove(name)


def transcript_stamp(folder: Path) -> str:
    """What differs whenever the transcript in the folder has changed; empty while another change could go unnoticed."""
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
        data = data[data.find(b"\n") + 1 :]  # what a cut leaves of a line could look like a header
    return transcript.parse(data, last=n)


def _within(n: int, cap: int) -> int:
    return max(0, min(n, cap))


def _read_sound(folder: Folder, name: str, offset: int = 0) -> bytes:
    """The file as its next append would leave it; nothing where there is no file."""
    try:
        data = folder.read(name, offset)
    except FileNotFoundError:
        return b""
    cut, missing = transcript.mend(data)
    return data[: len(data) - cut] + missing
