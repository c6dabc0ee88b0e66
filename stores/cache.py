"""The private folder of an identity's caches: outside of the identity, not shared, always deletable.

Its files hold parts of memories, so only this user may read it. A shelf is a subfolder: a file for each piece, in the
format of `chatbot.stores.observations.arrays`, and `manifest.json`, the list.
"""

import errno
import json
import os
import stat
import threading
from collections.abc import Collection, Hashable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any

from platformdirs import user_cache_path

from chatbot.stores import files
from chatbot.stores.errors import NO_FILE_LEFT, ReadOnlyFolder, StoreBusy, StoreFailed, UnsafePath
from chatbot.stores.home import Address, Home
from chatbot.stores.log import Shelf, ShelfWriter


class Cache:
    """Folder of the caches for the memory in `home`, created when needed."""

    def __init__(self, home: Home, root: Path | None = None) -> None:
        self._home = home
        self._root = root

    @cached_property
    def folder(self) -> Path:
        """The folder, computed on first use: most sessions are opened without a cache."""
        where = str(self._home) if isinstance(self._home, Address) else self._home.resolve()
        return (self._root or user_cache_path("chatbot")) / blake2b(os.fsencode(where), digest_size=16).hexdigest()

    def prepare(self) -> Path:
        """Return the folder, created if needed. Raises a `StoreError` if it is not private or cannot be made."""
        for folder in (self.folder.parent, self.folder):
            files.make_folder(folder)
            _check_ours(folder, folder.lstat())
        return self.folder

    def check(self) -> None:
        """Raise `UnsafePath` if the folder exists and is not private. Creates and changes nothing."""
        for folder in (self.folder.parent, self.folder):
            if os.path.lexists(folder):
                _check_ours(folder, folder.lstat())

    def move_away(self) -> Path:
        """Rename the folder, which is not private, so that a new one can be made; return its new name."""
        aside = self.folder.with_name(f"{self.folder.name}.foreign")
        while os.path.lexists(aside):
            aside = aside.with_name(f"{aside.name}+")
        return self.folder.rename(aside)

    def read(self, name: str) -> bytes:
        """Return the content of a file of the folder; empty if there is none, or if it is not private."""
        with suppress(OSError):
            _check_ours(self.folder, self.folder.lstat())
            return _read_private(self.folder / name)
        return b""

    def size(self) -> int:
        """Return how many bytes the caches take."""
        found = map(files.stamp, files.below(self.folder))
        return sum(each.size for each in found if each is not None)


def _check_ours(path: Path, status: os.stat_result, *, is_folder: bool = True) -> None:
    kind, is_kind = ("folder", stat.S_ISDIR) if is_folder else ("regular file", stat.S_ISREG)
    if not is_kind(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & files.OTHERS:
        raise UnsafePath(f"{path} is not private: it must be a {kind} of this user, closed to other users")


NAME = "manifest.json"
_LOCK_S = 10.0
_PASSING = {*NO_FILE_LEFT, errno.ENOMEM}


class FolderShelf(Shelf):
    """The shelf that `folder` is; with the `cache` whose folder it is in, it is as private as that."""

    def __init__(self, folder: Path, cache: Cache | None = None) -> None:
        self.folder = folder
        self.name = str(folder)
        self._cache = cache

    def prepare(self) -> None:
        if self._cache is not None:
            self._cache.prepare()
        if self.folder.is_symlink() or self.folder.is_file():  # debris in our own folder
            self.folder.unlink(missing_ok=True)
        files.make_folder(self.folder)
        if not os.access(self.folder, os.W_OK | os.X_OK):
            raise ReadOnlyFolder(f"{self.folder} cannot be written")

    def stamp(self) -> files.Stamp | None:
        return files.stamp(self.folder / NAME)

    def listed(self) -> Any:
        try:
            if self._cache is not None:
                self._cache.check()
            return json.loads(_read_private(self.folder / NAME))
        except (StoreBusy, StoreFailed):
            raise
        except (OSError, ValueError, RecursionError):
            return None

    def names(self) -> Collection[str]:
        with files.opened(self.folder) as folder:
            return [name for name in folder.names() if name not in {NAME, ".lock"}]

    def read(self, name: str) -> bytes:
        return _read_private(self.folder / name)

    @contextmanager
    def alone(self) -> Iterator[ShelfWriter]:
        with files.locked(self.folder, timeout_s=_LOCK_S) as folder:
            yield _FolderShelfWriter(folder)

    def clear(self) -> None:
        with files.translated(self.folder.parent):
            while os.path.lexists(self.folder):
                with suppress(FileNotFoundError):  # another process removes it too
                    files.erase(self.folder)
                    files.sync_folder(self.folder.parent)


class _FolderShelfWriter:
    """A `ShelfWriter` that holds the lock of the folder."""

    def __init__(self, folder: files.Folder) -> None:
        self._folder = folder

    def put(self, name: str, data: bytes, *, durable: bool = False) -> None:
        self._folder.replace(name, data, durable=durable)

    def publish(self, value: Any, *, durable: bool = True) -> files.Stamp | None:
        if (self._folder.path / NAME).is_dir():
            files.erase(self._folder.path / NAME)
        self._folder.replace(NAME, json.dumps(value).encode(), durable=durable)
        return self._folder.stamp(NAME)

    def remove(self, names: Collection[str]) -> None:
        """Delete files or folders of these names without looking into them."""
        for name in names:
            files.erase(self._folder.path / name)

    def sync(self) -> None:
        self._folder.sync()


class MemoryShelf(Shelf):
    """A dictionary of pieces, and its own `ShelfWriter`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._pieces: dict[str, bytes] = {}
        self._list: tuple[int, Any] | None = None
        self._published = 0
        self._alone = threading.RLock()

    def prepare(self) -> None:
        """Do nothing: it exists."""

    def stamp(self) -> Hashable | None:
        return self._list and self._list[0]

    def listed(self) -> Any:
        return self._list and self._list[1]

    def names(self) -> Collection[str]:
        return list(self._pieces)

    def read(self, name: str) -> bytes:
        if name not in self._pieces:
            raise FileNotFoundError(f"{self.name} holds no {name}")
        return self._pieces[name]

    @contextmanager
    def alone(self) -> Iterator[ShelfWriter]:
        with self._alone:
            yield self

    def clear(self) -> None:
        with self._alone:
            self._list = None
            self._pieces.clear()

    def put(self, name: str, data: bytes, *, durable: bool = False) -> None:  # noqa: ARG002 - nothing is
        self._pieces[name] = data

    def publish(self, value: Any, *, durable: bool = True) -> Hashable:  # noqa: ARG002
        self._published += 1
        self._list = (self._published, value)
        return self._published

    def remove(self, names: Collection[str]) -> None:
        for name in names:
            self._pieces.pop(name, None)

    def sync(self) -> None:
        """Do nothing: removal is immediate."""


def _read_private(path: Path) -> bytes:
    """Return the content of a private file: no link, no pipe. Raises `StoreBusy` if no file can be opened now."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        if error.errno in _PASSING:
            raise StoreBusy(f"{path}: {error.strerror}") from error
        raise
    try:
        _check_ours(path, os.fstat(descriptor), is_folder=False)
        return files.read_between(descriptor, 0)
    finally:
        os.close(descriptor)
