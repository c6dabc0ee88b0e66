"""`observations.jsonl`: the events of an identity's memory, one a line, only ever added to. The truth. Blocking.

Another process may add lines at any time; `read_new` tells what was added since. Compaction and erasing replace the
file, which readers notice by its inode; until then they read on in the old one, which they hold open.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path

from stores.errors import InvalidValue, LaterFormat, UnsafePath
from stores.events import Event, parse_event
from stores.files import Appender, Folder, Stamp, make_folder, read_between, stamp, translated
from stores.json_lines import encode, is_blank, record_of
from stores.observations.rewriting import Change, rewritten
from stores.observations.table import Place
from stores.open_folders import OpenFolders

logger = logging.getLogger(__name__)

NAME = "observations.jsonl"
LOCK_NAME = ".observations.lock"
_CHECKED_BYTES = 4096


class Journal:
    """The file, and how far it was read."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.path = home / NAME
        self.inode = 0
        self.position = 0
        """How many bytes were read, or written by us."""
        self._file: int | None = None
        self._folders = OpenFolders(LOCK_NAME)

    def is_replaced(self) -> bool:
        """Whether the file is another one than was read, or lost some of its lines."""
        if self._file is None:
            return False
        now = stamp(self.path)
        return now is None or now.inode != self.inode or now.size < self.position

    def skip_to(self, inode: int, position: int, digest: str) -> bool:
        """Go on from there, if this is the journal that had that digest at that position; whether it is."""
        if self._opened() is None or self.inode != inode or self._size() < position:
            return False
        self.position = position
        if self.tail_digest() == digest:
            return True
        self.position = 0
        return False

    def start_again(self) -> None:
        """Forget what was read: the next `read_new` begins at the start of the file that is there then."""
        self._forget_file()
        self.position = 0

    def read_new(self) -> Iterator[tuple[Place, bytes]]:
        """The whole lines behind what was read, with their places; each counts as read when the next is asked for."""
        file = self._opened()
        if file is None or self._size() <= self.position:
            return
        data = read_between(file, self.position, self._size())
        end = data.rfind(b"\n") + 1  # what is behind it is being written, or torn
        begin = 0
        while begin < end:
            stop = data.index(b"\n", begin)
            yield (self.position, stop - begin), data[begin:stop]
            self.position += stop + 1 - begin
            begin = stop + 1

    @contextmanager
    def locked(self) -> Iterator[Folder]:
        """Be the only one who writes; the folder is made if need be."""
        make_folder(self.home)
        with self._folders.locked(self.home) as folder:
            yield folder

    @contextmanager
    def appending(self, folder: Folder) -> Iterator[Writer]:
        """Open the file to add lines, having mended a torn end. Needs the lock, and all lines to be read."""
        with folder.appending(NAME, known=self._known_end()) as file:
            yield Writer(self, file)

    def event_at(self, place: Place) -> Event:
        """The event in the line at `place`. Raises a `StoreError` where the line is damaged."""
        file = self._opened()
        line = b"" if file is None else read_between(file, place[0], sum(place))
        return parse_event(record_of(line))

    def tail_digest(self) -> str:
        """A digest of what stands at the start and just before the position: it tells one journal from another."""
        file = self._opened()
        if not self.position or file is None:
            return ""
        head = read_between(file, 0, min(self.position, _CHECKED_BYTES))
        tail = read_between(file, max(0, self.position - _CHECKED_BYTES), self.position)
        return blake2b(head + tail, digest_size=16).hexdigest()

    def rewrite(self, folder: Folder, change: Change, more: Iterable[Event] = ()) -> dict[int, Place]:
        """Replace the file by the lines that `change` makes of it, and by the lines of `more`.

        Needs the lock, and all lines to be read. Returns where each line that is left stands now, by its old start.
        """
        kept, moved = rewritten(folder.read(NAME) if self.position else b"", change)
        data = b"".join([kept, *(encode(event.as_json()) for event in more)])
        folder.replace(NAME, data)
        self.start_again()
        self._opened()  # while nobody else can replace it
        self.position = len(data)
        return moved

    def close(self) -> None:
        """Let go of the file and the folder."""
        self._folders.close_all()
        self._forget_file()

    def _forget_file(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
        self.inode = 0

    def _opened(self) -> int | None:
        """The file, or None where there is none.

        It is held open from its first line to its last, so that what is read is one file all through, whoever replaces
        it meanwhile; and no other one can be taken for it, for its inode is not free.
        """
        if self._file is None and stamp(self.path) is not None:
            with translated(self.home):
                file = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
            status = os.fstat(file)
            if not stat.S_ISREG(status.st_mode):
                os.close(file)
                raise UnsafePath(f"{self.path} is not a regular file")
            self._file, self.inode = file, status.st_ino
        return self._file

    def _size(self) -> int:
        return 0 if self._file is None else os.fstat(self._file).st_size

    def _known_end(self) -> Stamp | None:
        now = stamp(self.path)
        return now if now is not None and (now.inode, now.size) == (self.inode, self.position) else None


class Writer:
    """Adds lines to the open journal."""

    def __init__(self, journal: Journal, file: Appender) -> None:
        self._journal = journal
        self._file = file

    def write(self, event: Event) -> Place:
        """Add the event's line; where it stands. It is on the disk after `sync`."""
        line = encode(event.as_json())
        self._file.write(line)
        place = (self._journal.position, len(line) - 1)
        self._journal.position += len(line)
        return place

    def sync(self) -> None:
        """Return once all lines are on the disk."""
        self._file.sync()


def event_of(line: bytes, path: Path) -> Event | None:
    """The event in a line, or None, with a warning, where it cannot be understood. Raises `LaterFormat`."""
    if is_blank(line):
        return None
    try:
        return parse_event(record_of(line))
    except LaterFormat as error:
        raise LaterFormat(f"{path}: {error}") from error
    except InvalidValue as error:
        logger.warning("%s holds a line that is no event, and was passed over: %s: %r", path, error, line[:80])
        return None
