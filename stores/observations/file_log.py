"""`observations.jsonl`: the events of an identity's memory, one a line, append-only. Blocking.

All caches derive from it. Another process may add lines at any time; `read_new` reads them. Compaction and erasing
replace the file, which readers notice by its inode; until then they read the old file, which they keep open.
"""

import logging
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path

from chatbot.stores import files
from chatbot.stores.errors import InvalidValue, LaterFormat, UnknownOutcome
from chatbot.stores.json_lines import SKIPPED, encode, is_blank, record_of
from chatbot.stores.log import LineChange, LinePlace, Log, LogMark, Writing, rewrite_lines
from chatbot.stores.row_events import Event, parse_event

logger = logging.getLogger(__name__)

NAME = "observations.jsonl"
LOCK_NAME = ".observations.lock"
_CHECKED_BYTES = 4096
_LAST_BYTES = 64
"""Bytes before the position, with the last line's checksum: if they have changed, the file was edited in place."""


class FileLog(Log):
    """A journal file, and how far it was read."""

    def __init__(self, home: Path) -> None:
        self._file: int | None = None
        self.path = home / NAME
        self.name = str(self.path)
        self._home = home
        self._inode = 0
        self._position = 0
        self._last = b""

    @property
    def position(self) -> int:
        return self._position

    def mark(self) -> LogMark:
        return LogMark(self._inode, self._position, self._tail_digest())

    def resume(self, mark: LogMark) -> bool:
        if self._open_file() is None or self._inode != mark.inode or self._size() < mark.size:
            return False
        self._position = mark.size
        if self._tail_digest() == mark.digest:
            self._last = self._read(max(0, mark.size - _LAST_BYTES), mark.size)
            return True
        self._position = 0
        return False

    def is_replaced(self) -> bool:
        file, position, last = self._file, self._position, self._last  # the indexing thread calls this, too
        if file is None:
            return False
        now = files.stamp(self.path)
        if now is None or now.inode != self._inode or now.size < position:
            return True
        with files.translated(self._home):
            return now.size > position and files.read_between(file, position - len(last), position) != last

    def start_again(self) -> None:
        self.close()
        self._position = 0
        self._last = b""

    def read_new(self) -> Iterator[tuple[LinePlace, bytes]]:
        file = self._open_file()
        if file is None or self._size() <= self._position:
            return
        with files.translated(self._home):
            data = files.read_between(file, self._position, self._size(), NAME, most=files.LARGEST_JOURNAL)
        end = data.rfind(b"\n") + 1  # the rest is still being written, or incomplete
        begin = 0
        while begin < end:
            line = data[begin : data.index(b"\n", begin) + 1]
            yield (self._position, len(line) - 1), line[:-1]
            self.note_read(line)
            begin += len(line)

    def was_written(self) -> bool:
        """Return whether the lock file exists."""
        return files.stamp(self._home / LOCK_NAME) is not None

    @contextmanager
    def locked(self) -> Iterator[Writing]:
        files.make_folder(self._home)
        with (
            files.locked(self._home, name=LOCK_NAME) as folder,
            folder.open_to_append(NAME, known=self._known_end()) as file,
        ):
            yield FileWriting(self, folder, file)

    def event_at(self, place: LinePlace) -> Event:
        return parse_event(record_of(self._read(place[0], sum(place))))

    def _tail_digest(self) -> str:
        """Return a digest of the file's start and of the bytes before the position: it distinguishes journals."""
        if not self._position or self._open_file() is None:
            return ""
        head = self._read(0, min(self._position, _CHECKED_BYTES))
        tail = self._read(max(0, self._position - _CHECKED_BYTES), self._position)
        return blake2b(head + tail, digest_size=16).hexdigest()

    def _read(self, start: int, end: int) -> bytes:
        """Return the bytes of the file between these places; empty if there is no file."""
        file = self._open_file()
        with files.translated(self._home):
            return b"" if file is None else files.read_between(file, start, end)

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
        self._inode = 0

    __del__ = close  # for a memory that its user drops without closing it

    def _open_file(self) -> int | None:
        """Return the file, or None. Kept open, it is read even if it is replaced, and no other gets its inode."""
        if self._file is None and files.stamp(self.path) is not None:
            with files.translated(self._home):
                file = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
            self._file, self._inode = file, files.checked_status(file, self.path).st_ino
        return self._file

    def _size(self) -> int:
        return 0 if self._file is None else os.fstat(self._file).st_size

    def note_read(self, line: bytes) -> LinePlace:
        """Count the next line as read; return its place."""
        place = (self._position, len(line) - 1)
        self._position += len(line)
        self._last = line[-_LAST_BYTES:]
        return place

    def take_as_read(self, data: bytes) -> None:
        """Count the current file, which has this content, as read. Needs the lock, so that it cannot be replaced."""
        self._open_file()
        self._position, self._last = len(data), data[-_LAST_BYTES:]

    def _known_end(self) -> files.Stamp | None:
        """Return the stamp of the file if all of it was read; None otherwise."""
        now = files.stamp(self.path)
        return now if now is not None and (now.inode, now.size) == (self._inode, self._position) else None


class FileWriting:
    """A `Writing` that holds the lock of the journal, and the file to add lines to."""

    def __init__(self, log: FileLog, folder: files.Folder, file: files.OpenFile) -> None:
        self._log = log
        self._folder = folder
        self._file = file

    def append(self, event: Event) -> LinePlace:
        line = encode(event.as_json())
        self._file.write(line)
        return self._log.note_read(line)

    def release(self) -> None:
        self._folder.unlock()

    def sync(self) -> None:
        try:
            self._file.sync()
        except OSError as error:  # others may have added lines behind ours, so none is taken out again
            raise UnknownOutcome.of(f"{self._log.name}: the disk failed", str(error.strerror)) from error

    def rewrite(self, change: LineChange, more: Iterable[Event] = ()) -> dict[int, LinePlace]:
        kept, moved = rewrite_lines(
            self._folder.read(NAME, most=files.LARGEST_JOURNAL) if self._log.position else b"", change
        )
        data = b"".join([kept, *(encode(event.as_json()) for event in more)])
        self._folder.replace(NAME, data)
        self._log.start_again()
        self._log.take_as_read(data)
        return moved


def event_of(line: bytes, name: str) -> Event | None:
    """Return the event in a line; None, with a warning, if it cannot be understood. Raises `LaterFormat`."""
    if is_blank(line):
        return None
    try:
        return parse_event(record_of(line))
    except LaterFormat as error:
        raise LaterFormat(f"{name}: {error}") from error
    except InvalidValue as error:
        logger.warning(SKIPPED, name, "an event", error, line[:80])
        return None
