"""Lines, documents, leases and blobs as files of one folder, and the backend over the folders of an identity. Blocking.

<name>.jsonl     lines, see `chatbot.stores.json_lines`
<name>           a document
.<name>.lock     a lease; free again when its process ends, however it ends
<name>/          blobs, each a file
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from chatbot.stores import backend, files, json_lines
from chatbot.stores.errors import InvalidValue, StoreAway, StoreBusy
from chatbot.stores.files import FILE_MODE, Folder, Stamp, locked, make_folder, opened, path_inside, stamp, translated
from chatbot.stores.on_disk import examination
from chatbot.stores.on_disk.sessions import FolderSessions
from chatbot.stores.records import SessionRef

_AT_A_TIME = 4 * 1024 * 1024
"""Bytes that are read at a time; a line is shorter."""
_KNOWN_BYTES = 64
"""Bytes before a mark by which a rewritten file is noticed."""


class FilePlace(backend.Place):
    """A folder, created at the first write if `makes_folder`."""

    def __init__(self, folder: Path, *, makes_folder: bool = True) -> None:
        self.folder = folder
        self.name = str(folder)
        self.makes_folder = makes_folder

    def lines(self, name: str) -> "FileLines":
        return FileLines(self, f"{backend.checked_name(name)}.jsonl")

    def document(self, name: str) -> "FileDocument":
        return FileDocument(self, backend.checked_name(name))

    def lease(self, name: str) -> "FileLease":
        return FileLease(self, f".{backend.checked_name(name)}.lock")

    def blobs(self, name: str) -> "FileBlobs":
        return FileBlobs(self, backend.checked_name(name))

    def exposed(self) -> Iterator[backend.Flaw]:
        """Check the permissions of the folder and of everything below it."""
        return examination.exposed([self.folder, *sorted(files.below(self.folder))])

    def prepare(self) -> None:
        """Create the folder if `makes_folder`."""
        if self.makes_folder:
            make_folder(self.folder)

    @contextmanager
    def alone(self) -> Iterator[Folder]:
        """Lock the folder for changes of its files."""
        self.prepare()
        with locked(self.folder) as folder:
            yield folder


class FileLines(backend.Lines):
    """A file with one record a line. Unreadable lines are kept."""

    def __init__(self, place: FilePlace, name: str) -> None:
        self._place = place
        self._name = name

    @contextmanager
    def alone(self) -> Iterator[backend.RecordWriter]:
        with self._place.alone() as folder:
            yield _FileRecordWriter(folder, self._name)

    def append(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Add lines to the file without holding a lock during the sync."""
        with self._place.alone() as folder:
            folder.append(self._name, b"".join(map(json_lines.encode, records)), unlock=True)

    def newest_first(self) -> Iterator[backend.Record]:
        with self._reading() as folder:
            if folder is not None:
                yield from json_lines.read_backwards(folder, self._name)

    def since(self, mark: backend.Mark | None) -> backend.Reading:
        """Read the lines after the mark, at most 4 MiB at a time; costs one stat if nothing is new.

        A mark holds the last bytes before it, too: after a rewrite another file may get the same inode.
        """
        now = stamp(self._place.folder / self._name)
        if now is None:
            return backend.Reading([], None, starts_over=True)
        inode, end, last = mark if isinstance(mark, tuple) else (now.inode, 0, b"")
        if (now.inode, now.size) == (inode, end):
            return backend.Reading([], mark, starts_over=mark is None)
        try:
            with opened(self._place.folder) as folder:
                data = folder.read(self._name, end - len(last), end + _AT_A_TIME)
                if now.inode != inode or not data.startswith(last):
                    return self.since(None)
                new = data[len(last) :]
                length = new.rfind(b"\n") + 1  # of whole lines
                records = list(json_lines.readable(new[:length].split(b"\n"), folder.path / self._name))
        except FileNotFoundError:
            return backend.Reading([], None, starts_over=True)
        last = data[: len(last) + length][-_KNOWN_BYTES:]
        return backend.Reading(records, (inode, end + length, last), starts_over=mark is None)

    def holds(self, name: str, values: Collection[str]) -> bool:
        """Search the lines for these values without decoding them."""
        before, wanted = f'"{name}":"'.encode(), {value.encode() for value in values}
        with self._reading() as folder:
            lines = json_lines.lines_backwards(folder, self._name) if folder else ()
            return any(each.partition(b'"')[0] in wanted for line in lines for each in line.split(before)[1:])

    @contextmanager
    def _reading(self) -> Iterator[Folder | None]:
        """Open the folder; yields None if it does not exist yet."""
        if self._place.makes_folder and not self._place.folder.is_dir():
            yield None
            return
        with opened(self._place.folder) as folder:
            yield folder


class _FileRecordWriter:
    """A writer that holds the lock of the folder."""

    def __init__(self, folder: Folder, name: str) -> None:
        self._folder = folder
        self._name = name

    def append(self, records: Sequence[Mapping[str, Any]]) -> None:
        self._folder.append(self._name, b"".join(map(json_lines.encode, records)))

    def rewrite(self, change: backend.RecordChange, *, holding: Collection[str] = ()) -> None:
        """Replace the file; unchanged lines keep their bytes."""
        if self._folder.stamp(self._name) is None:
            return
        texts = [text.encode() for text in holding]
        old = self._folder.read(self._name).split(b"\n")
        new = [
            _rewrite_line(line, change) if line and (not texts or any(text in line for text in texts)) else line
            for line in old
        ]
        if new != old:
            self._folder.replace(self._name, b"\n".join(line for line in new if line is not None))


class FileDocument(backend.Document):
    """A file that is replaced as a whole."""

    def __init__(self, place: FilePlace, name: str) -> None:
        self._place = place
        self._name = name
        self.name = str(place.folder / name)
        self._cached: tuple[Stamp | None, bytes | None] = (None, None)

    def read(self) -> bytes | None:
        """Return the content; skips reading if a settled stamp is unchanged."""
        now = stamp(self._place.folder / self._name)
        if now is None:
            self._cached = (None, None)
        elif now != self._cached[0] or not now.is_settled():
            data = self._load()
            self._cached = (now, self._cached[1] if data == self._cached[1] else data)
        return self._cached[1]

    def change(self, change: Callable[[bytes | None], bytes], *, durable: bool = True) -> bytes:
        with self._place.alone() as folder:
            before = self._load()
            data = change(before)
            if data != before:
                folder.replace(self._name, data, durable=durable)
            return data

    def set_aside(self) -> str:
        with self._place.alone() as folder:
            return folder.set_aside(self._name) if folder.stamp(self._name) else ""

    def _load(self) -> bytes | None:
        try:
            with opened(self._place.folder) as folder:
                return folder.read(self._name)
        except FileNotFoundError:
            return None


class FileLease(backend.Lease):
    """The lock of a file, which the kernel releases with its process."""

    def __init__(self, place: FilePlace, name: str) -> None:
        self._place = place
        self._name = name
        self._held = ExitStack()

    def take(self) -> bool:
        self._place.prepare()
        with ExitStack() as stack:
            try:
                stack.enter_context(locked(self._place.folder, timeout_s=0, name=self._name))
            except StoreBusy as error:
                if error.__cause__ is not None:  # the lock is not held, but no file can be opened
                    raise
                return False
            self._held = stack.pop_all()
        return True

    def release(self) -> None:
        self._held.close()


class FileBlobs(backend.Blobs):
    """A folder in the folder of its place, with a file for each blob; created at the first `put`."""

    def __init__(self, place: FilePlace, name: str) -> None:
        self._place = place
        self._folder = place.folder / name

    def put(self, data: bytes, suffix: str = "") -> str:
        name = backend.blob_name(data, suffix)
        with self._place.alone():  # a deleted session's folder must not come back
            make_folder(self._folder)
            with opened(self._folder) as folder:
                if folder.stamp(name) is None or folder.read(name) != data:
                    folder.replace(name, data)
        return name

    def read(self, name: str) -> bytes | None:
        backend.checked_blob_name(name)
        try:
            with opened(self._folder) as folder:
                data = folder.read(name)
        except FileNotFoundError:
            return None
        return backend.checked_blob(name, data)

    def sizes(self) -> dict[str, int]:
        """Return the size in bytes of each blob file; files of other names are ignored."""
        try:
            with opened(self._folder) as folder:
                stamps = {name: folder.stamp(name) for name in filter(backend.is_blob_name, folder.names())}
        except FileNotFoundError:
            return {}
        return {name: each.size for name, each in stamps.items() if each is not None}

    def drop(self, name: str) -> None:
        backend.checked_blob_name(name)
        try:
            with self._place.alone(), opened(self._folder) as folder:
                folder.remove(name)
                folder.sync()
        except FileNotFoundError:
            return


def _rewrite_line(line: bytes, change: backend.RecordChange) -> bytes | None:
    try:
        record = json_lines.record_of(line)
    except InvalidValue:
        return line
    changed = change(record)
    if changed == record:
        return line
    return None if changed is None else json_lines.encode(changed).rstrip(b"\n")


class FileBackend(FilePlace, backend.Backend):
    """The folder `home`, created at the first write, and not again once it was there."""

    def __init__(self, home: Path) -> None:
        super().__init__(home, makes_folder=not home.is_dir())
        self.sessions: FolderSessions = FolderSessions(home)

    def place_of(self, session: SessionRef) -> FilePlace:
        return FilePlace(session.folder, makes_folder=False)

    def private_file(self, name: str, *, creates: bool = True) -> Path:
        path = path_inside(self.folder, name)
        if creates:
            self.prepare()
            with translated(self.folder):
                path.touch(FILE_MODE)
        return path

    def is_there(self) -> bool:
        return self.folder.is_dir()

    def check_there(self) -> None:
        if self.folder.is_dir():
            self.makes_folder = False
        elif not self.makes_folder:
            raise StoreAway.gone(self.folder)

    def prepare(self) -> None:
        self.check_there()
        super().prepare()

    def refusal(self) -> OSError | None:
        return examination.unwritable(self.folder)

    def examine(self, options: backend.Examination) -> Iterator[backend.Flaw]:
        return examination.examine(self.folder, self.sessions, options)

    def sizes(self) -> Mapping[str, int]:
        found = (path for path in files.below(self.folder / "sessions") if path.is_file() and not path.is_symlink())
        return {"sessions": sum(each.size for each in map(stamp, found) if each is not None)}
