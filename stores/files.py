"""Durable files: the only module that writes the content of stores. Tests that kill real processes hold its promises.

- data of `append` and `replace` is on the disk on return (`open_to_append` leaves that to `sync`: no lock is held
  while waiting for the disk);
- a replaced file is always complete: the old one or the new one;
- `locked` on a folder excludes all other processes; waiting for it has a time limit;
- a name never leaves its folder: names are opened relative to the folder's descriptor, and links, hard ones too, are
  refused;
- an error is never treated as an empty file: it is raised and names the file.

Everything here blocks; async callers use a thread once per operation, not per system call.
"""

import errno
import logging
import os
import secrets
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from chatbot.stores.errors import (
    FULL,
    NO_FILE_LEFT,
    MissingFolder,
    ReadOnlyFolder,
    StoreBusy,
    StoreError,
    StoreFailed,
    UnsafePath,
    kind_of,
)
from chatbot.stores.records import ID, real_path

logger = logging.getLogger(__name__)

LOCK_NAME = ".lock"
FILE_MODE = 0o600
FOLDER_MODE = 0o700
OTHERS = stat.S_IRWXG | stat.S_IRWXO
"""Rights of other users, which none of our files has."""
LOCK_TIMEOUT_S = 10.0
_SAFELY = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # the last flag keeps a pipe in place of a file from blocking
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | _SAFELY
_TAIL_BYTES = 4096
_CHUNK_BYTES = 64 * 1024
"""Bytes up to which a part is read without looking up the length of the file."""
LONGEST_ENTRY = 64 << 20
"""Maximum bytes of an entry: so many at the end of a file hold the beginning of its last one."""
_MOST = 1 << 30
"""Maximum bytes of a file to read at once: more could fill the memory."""
LARGEST_JOURNAL = 8 << 30
"""Maximum bytes of a journal to read at once."""
_sync_data = getattr(os, "fdatasync", os.fsync)  # macOS has only fsync
_PAUSE_S = 0.0005  # constant: a waiter whose pauses grew might never get the lock
_SETTLED_NS = 50_000_000
"""File systems have coarse clocks: a file that changed less than this ago may change again and keep its stamp."""

_IF_READ_ONLY = ": make it writable, or change a copy of it"
_REMEDIES = {
    errno.EACCES: ": run `chatbot doctor`, which checks the permissions",
    **dict.fromkeys(NO_FILE_LEFT, ": raise the limit of open files, as with `ulimit -n`"),
    errno.ENOLCK: ": put the folder on a disk that has file locks",
    **dict.fromkeys(FULL, ": free some space, then try again"),
    errno.EROFS: _IF_READ_ONLY,
}
_READ_ONLY = {errno.EROFS, errno.EACCES, errno.EPERM}

Mend = Callable[[bytes, int], tuple[int, bytes]]
"""Function from the last bytes of a file, and its size, to the number to cut off and the bytes to add before an append.

It is called again with more of the file if it would cut off all that it was given.
"""


class Stamp(Struct, frozen=True):
    """State of a file: enough to detect a change without reading it."""

    inode: int
    size: int
    mtime_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> "Stamp":
        """Return the stamp in a `stat` result."""
        return cls(status.st_ino, status.st_size, status.st_mtime_ns)

    def is_settled(self) -> bool:
        """True if every later change is certain to alter the stamp."""
        return time.time_ns() - self.mtime_ns > _SETTLED_NS


def stamp(path: Path) -> Stamp | None:
    """Return the stamp of the file at `path`; None if it does not exist."""
    with suppress(FileNotFoundError, NotADirectoryError):
        return Stamp.of(os.lstat(path))
    return None


DEEPEST = 8
"""Levels of folders that are examined; ours are four."""


def below(folder: Path) -> Iterator[Path]:
    """Yield all files, folders and links below, down to `DEEPEST`. Those removed meanwhile may be included or not."""
    for parent, folders, files in os.walk(folder):
        yield from (Path(parent, name) for name in (*folders, *files))
        if len(Path(parent).relative_to(folder).parts) >= DEEPEST:
            folders.clear()


def erase(path: Path) -> None:
    """Delete a file, a link, a pipe, or a folder with its content, however deep. Others may do so meanwhile."""
    while path.is_dir() and not path.is_symlink():  # opening a pipe as a folder would wait forever
        try:
            with closing(open_folder(path)) as folder:
                folder.clear()
            path.rmdir()
        except OSError as error:  # another has deleted a part of it, or moved one to the top
            if error.errno not in {errno.ENOENT, errno.ENOTEMPTY}:
                raise
    path.unlink(missing_ok=True)


def mend_lines(tail: bytes, _: int) -> tuple[int, bytes]:
    """`Mend` of files with one record a line: cut zeros, and end a torn last line so that it stays separate."""
    sound = tail.rstrip(b"\0")
    return len(tail) - len(sound), b"\n" if sound and not sound.endswith(b"\n") else b""


class Folder:
    """An open folder. Names are plain file names; a name with a separator, or a link, is refused."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self._lock: OpenFile | None = None
        self._unlock: Callable[[int], object] | None = None

    def lock(self, timeout_s: float, name: str = LOCK_NAME) -> None:
        """Lock the folder, once, against all others that lock it by `name`; see `locked`."""
        from filelock import lock_descriptor, unlock_descriptor

        try:
            self._lock = self._open(name, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            if isinstance(error, StoreError) or error.errno not in _READ_ONLY:
                raise
            raise _read_only(self.path, error) from error
        give_up = time.monotonic() + timeout_s
        while not lock_descriptor(self._lock.descriptor, blocking=False):
            if time.monotonic() > give_up:
                raise StoreBusy(
                    f"{self.path} was locked by another process for {timeout_s:g} s: try again when it has finished"
                )
            time.sleep(_PAUSE_S)
        self._unlock = unlock_descriptor
        self.check_there()

    def check_there(self) -> None:
        """Raise `MissingFolder` if the path now refers to another folder: what was read may be partly deleted."""
        lock = self._lock
        named = self.status(lock.name) if lock is not None else None
        is_locked = lock is None or (named is not None and os.path.samestat(named, lock.status))
        if not is_locked or not os.path.samestat(os.lstat(self.path), os.fstat(self._descriptor)):
            raise MissingFolder(f"{self.path} was deleted or replaced meanwhile")

    def unlock(self) -> None:
        """Unlock before the folder is closed, so that others need not wait for our disk."""
        if self._lock is not None and self._unlock is not None:
            self._unlock(self._lock.descriptor)
            self._unlock = None

    def close(self) -> None:
        """Unlock and close the folder."""
        self.unlock()
        if self._lock is not None:
            os.close(self._lock.descriptor)
        os.close(self._descriptor)

    def read(
        self, name: str, start: int = 0, end: int | None = None, *, may_be_linked: bool = False, most: int | None = None
    ) -> bytes:
        """Read the file from `start` to `end`, a hard link only if it `may_be_linked`.

        Raises `FileNotFoundError`, or `OSError` for more bytes than `most`, by default 1 GiB.
        """
        with self._file(name, os.O_RDONLY, may_be_linked=may_be_linked) as file:
            return read_between(file.descriptor, start, end, name, most=most or _MOST)

    def chunks_backwards(self, name: str, size: int) -> Iterator[bytes]:
        """Yield chunks of `size` bytes, last first, all of one file, even if its name is reused meanwhile."""
        with suppress(FileNotFoundError), self._file(name, os.O_RDONLY) as file:
            end = os.fstat(file.descriptor).st_size
            while end:
                yield read_between(file.descriptor, max(0, end - size), end)
                end = max(0, end - size)

    def stamp(self, name: str) -> Stamp | None:
        """Return the file's stamp; None if it does not exist."""
        status = self.status(name)
        return None if status is None else Stamp.of(status)

    def status(self, name: str) -> os.stat_result | None:
        """Return the status of the file, folder or link of that name; None if there is none."""
        with suppress(FileNotFoundError):
            return os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)
        return None

    def inner(self, name: str, *, create: bool = False) -> "Folder":
        """Open a folder in this one, to be closed by the caller; with `create`, make a missing one."""
        if create:
            with suppress(FileExistsError):
                os.mkdir(_plain(name), FOLDER_MODE, dir_fd=self._descriptor)
        return Folder(self.path / name, os.open(_plain(name), _FOLDER, dir_fd=self._descriptor))

    def names(self) -> list[str]:
        """Return the names of all that is in the folder, sorted."""
        return sorted(os.listdir(self._descriptor))  # noqa: PTH208 - a descriptor, not a path

    def replace(self, name: str, data: bytes, *, durable: bool = True) -> None:
        """Replace the file by `data`, atomically and durably. Needs the folder's lock.

        Without `durable` a power cut may lose or damage it: only for notes that nothing depends on.
        """
        self.rename(self.draft(name, data, durable=durable), name, durable=durable)

    def draft(self, name: str, data: bytes, *, durable: bool = True) -> str:
        """Write a replacement of the file and return the draft to `rename` to it. Needs the folder's lock."""
        for stray in self.names():
            if stray.startswith(f".{_plain(name)}.") and stray.endswith(".tmp"):
                self.remove(stray)
        draft = f".{name}.{os.getpid()}-{secrets.token_hex(4)}.tmp"
        self.create(draft, data, durable=durable)
        return draft

    def put(self, name: str, data: bytes, mode: int) -> None:
        """Replace the file, or create it, with that mode, atomically and durably. Needs no lock; leaves no draft."""
        draft = f".{secrets.token_hex(8)}.tmp"
        try:
            self.create(draft, data, mode=mode)
            self.rename(draft, name)
        finally:
            self.remove(draft)

    def create(self, name: str, data: bytes, *, durable: bool = True, mode: int = FILE_MODE) -> None:
        """Write a new file durably; no file is left if that fails."""
        with self._file(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as file:
            try:
                os.fchmod(file.descriptor, mode)
                file.write(data)
                if durable:
                    os.fsync(file.descriptor)
            except OSError:
                os.unlink(name, dir_fd=self._descriptor)
                raise

    def rename(self, name: str, new_name: str, *, durable: bool = True) -> None:
        """Rename within the folder, durably, in place of any file of the new name."""
        try:
            os.rename(name, new_name, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)
        except OSError as error:
            error.filename = new_name
            raise
        if durable:
            self.sync()

    def append(self, name: str, data: bytes, *, mend: Mend = mend_lines, unlock: bool = False) -> None:
        """Add `data` at the end, durably. Needs the folder's lock, which `unlock` frees while the disk syncs."""
        with self.open_to_append(name, mend=mend) as file:
            file.write(data)
            if unlock:
                self.unlock()
            file.sync()

    @contextmanager
    def open_to_append(
        self, name: str, *, mend: Mend = mend_lines, known: Stamp | None = None, durable: bool = True
    ) -> "Iterator[OpenFile]":
        """Open the file for appending and repair a torn end first. Needs the folder's lock.

        `known` is the stamp of the file when its end was last known to be valid: if it is unchanged, the end is not
        read again. Without `durable` a power cut may lose the name of a new file.
        """
        with self._file(name, os.O_RDWR | os.O_APPEND | os.O_CREAT) as file:
            if file.status.st_size == 0:
                if durable:
                    self.sync()
            elif Stamp.of(file.status) != known:
                self._mend(file, file.status.st_size, mend)
            yield file

    def sync(self) -> None:
        """Return once the names in the folder are on the disk."""
        os.fsync(self._descriptor)

    def cut(self, name: str, size: int) -> None:
        """Shorten the file to `size` bytes, durably. Needs the folder's lock."""
        with self._file(name, os.O_WRONLY) as file:
            os.ftruncate(file.descriptor, size)
            os.fsync(file.descriptor)

    def remove(self, name: str) -> None:
        """Delete the file; a missing one is no error."""
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._descriptor)

    def clear(self) -> None:
        """Delete all that is in the folder, however deep."""
        waiting = ["."]
        while waiting:  # folders are moved to the top: `rmtree` recurses, and opens each level
            name = waiting.pop()
            inner = os.open(name, _FOLDER, dir_fd=self._descriptor)
            try:
                for each in list(os.scandir(inner)):
                    if each.is_dir(follow_symlinks=False):
                        waiting.append(secrets.token_hex(8))
                        os.rename(each.name, waiting[-1], src_dir_fd=inner, dst_dir_fd=self._descriptor)
                    else:
                        os.unlink(each.name, dir_fd=inner)
            finally:
                os.close(inner)
            if name != ".":
                os.rmdir(name, dir_fd=self._descriptor)

    def set_aside(self, name: str) -> str:
        """Rename a damaged file so that it is neither read nor overwritten; returns its new name."""
        aside = aside_of(name)
        self.rename(name, aside)
        return aside

    def _mend(self, file: "OpenFile", size: int, mend: Mend) -> None:
        reach = _TAIL_BYTES
        tail = read_between(file.descriptor, max(0, size - reach), size)
        while (found := mend(tail, size))[0] == len(tail) < size:
            reach *= 4  # reaches `LONGEST_ENTRY` exactly, the most that is read
            tail = read_between(file.descriptor, max(0, size - reach), size, file.name, most=LONGEST_ENTRY)
        cut, missing = found
        path, lost = self.path / file.name, tail[len(tail) - cut :].rstrip(b"\0")
        if b"\n" in lost:  # more than half a header: worth keeping
            aside = aside_of(file.name)
            self.create(aside, lost)
            logger.warning("the last entry of %s was cut off: the part that was written is kept as %s", path, aside)
        elif cut:
            logger.warning("cut %d bytes of an incomplete write off the end of %s: %r", cut, path, lost[:80])
        if cut:
            os.ftruncate(file.descriptor, size - cut)
        if missing:
            logger.warning("completed the end of %s, which a kill or an edit by hand left open", path)
            file.write(missing)

    @contextmanager
    def _file(self, name: str, flags: int, *, may_be_linked: bool = False) -> "Iterator[OpenFile]":
        try:
            file = self._open(name, flags, may_be_linked=may_be_linked)
            try:
                yield file
            finally:
                os.close(file.descriptor)
        except OSError as error:
            if not isinstance(error, StoreError):
                # A failed write names no file; a draft has the name of the file that it is to replace.
                error.filename = name[1:].rsplit(".", 2)[0] if name.endswith(".tmp") else name
            raise

    def _open(self, name: str, flags: int, *, may_be_linked: bool = False) -> "OpenFile":
        descriptor = os.open(_plain(name), flags | _SAFELY, FILE_MODE, dir_fd=self._descriptor)
        return OpenFile(name, descriptor, checked_status(descriptor, self.path, name, may_be_linked=may_be_linked))


class OpenFile(NamedTuple):
    """An open file, with its name and its state when it was opened."""

    name: str
    descriptor: int
    status: os.stat_result

    def write(self, data: bytes) -> None:
        """Add `data`, whole or not at all: a write that fails half way, as on a full disk, is undone."""
        written = 0
        try:
            while written < len(data):
                written += os.write(self.descriptor, data[written:] if written else data)
        except OSError:
            os.ftruncate(self.descriptor, os.fstat(self.descriptor).st_size - written)
            raise

    def sync(self) -> None:
        """Return once everything written is on the disk."""
        _sync_data(self.descriptor)

    def stamp(self) -> Stamp:
        """Return the file's current stamp."""
        return Stamp.of(os.fstat(self.descriptor))


def checked_status(descriptor: int, path: Path, name: str = "", *, may_be_linked: bool = False) -> os.stat_result:
    """Return the status of the open file `path / name`. Raises `UnsafePath`, and closes it, unless it is a file.

    A hard link is refused, too: its other name could be anywhere, as a symbolic link could lead anywhere.
    """
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        what = "not a regular file"
    elif status.st_nlink > 1 and not may_be_linked:
        what = "a hard link, whose other name could be anywhere: put a copy in its place"
    else:
        return status
    os.close(descriptor)
    raise UnsafePath(f"{path / name} is {what}")


def open_folder(path: Path) -> Folder:
    """Open the folder at `path`, to be closed by the caller; errors are those of the operating system."""
    return Folder(path, os.open(path, _FOLDER))


@contextmanager
def opened(path: Path) -> Iterator[Folder]:
    """Open the folder at `path`, which must not be a link; operating-system errors become store errors."""
    with translated(path), closing(open_folder(path)) as folder:
        yield folder


@contextmanager
def locked(path: Path, *, timeout_s: float = LOCK_TIMEOUT_S, name: str = LOCK_NAME) -> Iterator[Folder]:
    """Open the folder at `path` and exclude all others who lock it by `name`, in this process and in others."""
    with opened(path) as folder:
        folder.lock(timeout_s, name)
        yield folder


def make_folder(path: Path) -> None:
    """Make a private folder and its parents durably; an existing one is no error."""
    with translated(path):
        if path.is_dir():
            return
        make_folder(path.parent)
        with suppress(FileExistsError):
            path.mkdir(FOLDER_MODE)
        if not path.is_dir():
            raise _no_folder(path)
        sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Return once the names in the folder are on the disk."""
    with translated(path), closing(Folder(path, os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))) as folder:
        folder.sync()


def path_inside(root: Path, name: str) -> Path:
    """Return `root / name`. Raises `UnsafePath` if it is not directly inside `root` after resolving links."""
    path = root / _plain(name)
    if path.is_symlink() and real_path(path).parent != real_path(root):
        raise UnsafePath(f"{path} is a link that leaves {root}")
    return path


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Convert an operating-system error about `path` into a store error with its message."""
    try:
        yield
    except OSError as error:
        is_missing = isinstance(error, FileNotFoundError | NotADirectoryError)
        if isinstance(error, StoreError) or (is_missing and path.is_dir() and not path.is_symlink()):
            raise
        if is_missing:
            raise _no_folder(path) from error
        if error.errno == errno.EROFS:
            raise _read_only(path, error) from error
        if error.errno == errno.ELOOP:
            raise UnsafePath(f"{path / (error.filename or '')} is a link, which could lead anywhere") from error
        raise _failure(f"{path / (error.filename or '')}:", error) from error


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Convert an operating-system error that keeps the file at `path` from being written into a `StoreFailed`."""
    try:
        yield
    except OSError as error:
        if isinstance(error, StoreError):
            raise
        raise _failure(f"{path} cannot be written:", error) from error


def _failure(what: str, error: OSError) -> StoreFailed | StoreBusy:
    return kind_of(error)(f"{what} {error.strerror or error}{_REMEDIES.get(error.errno or 0, '')}")


def _read_only(path: Path, error: OSError) -> ReadOnlyFolder:
    return ReadOnlyFolder(f"{path} cannot be written: {error.strerror}{_IF_READ_ONLY}")


def _plain(name: str) -> str:
    if "/" in name or "\0" in name or name in {"", ".", ".."}:
        raise UnsafePath(f"{name!r} is not a plain file name")
    return name


def _no_folder(path: Path) -> UnsafePath | MissingFolder:
    """Return the error for a folder that is missing, or in whose place something else is."""
    if path.is_symlink():
        return UnsafePath(f"{path} is a link, not a folder")
    there = next(each for each in (path, *path.absolute().parents) if os.path.lexists(each))
    if there.is_dir():
        return MissingFolder.of(path.name) if ID.fullmatch(path.name) else MissingFolder(f"folder not found: {path}")
    elsewhere = ", or choose another place" if there != path else ""
    return UnsafePath(f"{there} is not a folder: move it away{elsewhere}")


def aside_of(name: str, mark: str = ".damaged") -> str:
    """Return an unused name for a file or folder that is set aside."""
    return f"{name}{mark}-{datetime.now(UTC):%Y%m%dT%H%M%S%f}"


def read_between(descriptor: int, start: int, end: int | None = None, name: str = "", *, most: int = _MOST) -> bytes:
    """Return the bytes of an open file from `start` to `end`, or to its end. Raises `OSError` for too many."""
    if end is None or end - start > _CHUNK_BYTES:
        size = os.fstat(descriptor).st_size
        end = size if end is None else min(end, size)
    try:
        if end - start > most:
            raise MemoryError
        data = os.pread(descriptor, max(end - start, 0), start)
        while len(data) < end - start and (more := os.pread(descriptor, end - start - len(data), start + len(data))):
            data += more
    except MemoryError:
        raise OSError(errno.EFBIG, f"{end - start:,} bytes are too many to be read at once", name) from None
    return data
