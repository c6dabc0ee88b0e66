"""One session's transcript on the disk: durable appends, tail reads and the cap. Blocking; the format is elsewhere."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from stores import transcript
from stores.errors import MissingFolder
from stores.files import Folder, Stamp, locked, opened, stamp
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

    def __init__(self, folder: Path, cap: int) -> None:
        self._folder = folder
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
        with locked(self._folder) as folder, folder.appending(NAME, mend=transcript.mend, known=self._sound) as file:
            file.write(data)
            self._sound = file.stamp()
            is_overfull = self._count(folder, self._sound) > self._cap + self._slack
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

    def read_last(self, n: int) -> list[TranscriptEntry]:
        """The last `n` entries within the cap, oldest first, read from the end of the file."""
        n = _within(n, self._cap)
        with opened(self._folder) as folder:
            before = folder.stamp(NAME)
            if before is None or n == 0:
                return []
            is_settled = before.is_settled()
            entries, whole = self._read_tail(folder, before.size, n)
            has_archive = folder.stamp(ARCHIVE_NAME) is not None
            if len(entries) < n and has_archive:
                return self.read_all()[-n:]  # entries were taken back, so the archive reaches into the cap again
            if is_settled and folder.stamp(NAME) == before:
                self._cached = (before, entries, whole and not has_archive)
        return entries[-n:]

    def read_all(self) -> list[TranscriptEntry]:
        """Every entry, the archived ones first."""
        with locked(self._folder) as folder:
            self._undo_killed_compaction(folder)
            parts = [_read_sound(folder, name) for name in (ARCHIVE_NAME, NAME)]
        return [entry for part in parts for entry in transcript.parse(part)]

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

    def _read_tail(self, folder: Folder, size: int, n: int) -> tuple[list[TranscriptEntry], bool]:
        """At least the last `n` entries, if there are that many, and whether these are all."""
        reach = _FIRST_TAIL_BYTES
        while True:
            offset = max(0, size - reach)
            data = folder.read(NAME, offset)
            if data and not data.endswith(b"\n\n"):
                data = self._read_alone(offset)
            if offset:
                data = data[data.find(b"\n") + 1 :]  # what a cut leaves of a line could look like a header
            entries = transcript.parse(data)
            if offset == 0 or len(entries) >= n:
                return entries, offset == 0
            reach *= 4

    def _read_alone(self, offset: int) -> bytes:
        """Read while no one writes: what then still lacks its end was torn, or edited by hand."""
        with locked(self._folder) as folder:
            return _read_sound(folder, NAME, offset)

    def _count(self, folder: Folder, now: Stamp) -> int:
        """How many entries the file holds, reading only what was added since the last count."""
        inode, size, entries = self._counted
        if inode != now.inode or size > now.size:
            size = entries = 0
        entries += len(transcript.starts(folder.read(NAME, size)))
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


def _cut_last(folder: Folder, name: str, n: int) -> list[TranscriptEntry]:
    data = _read_sound(folder, name)
    blocks = transcript.blocks(data)[-n:]
    if blocks:
        folder.cut(name, blocks[0].start)
    return [transcript.entry_of(data, block) for block in blocks]


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
