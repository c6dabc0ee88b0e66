"""The private folder of an identity's caches: outside of the identity, not shared, always deletable.

Its files hold parts of memories, so only this user may read it. Nothing in it is executed: its files are arrays with
checksums, see `chatbot.stores.observations.arrays`.

A shelf is a subfolder: a file for each piece, and `manifest.json`, the list. It has three locks, each on a folder:
the shelf itself while a name in it changes; `writing` while pieces are made, until they are published or dropped;
`waiting` for the one process that may wait for that.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from shutil import rmtree
from typing import Any

from platformdirs import user_cache_path

from chatbot.stores.errors import ReadOnlyFolder, StoreBusy, UnsafePath
from chatbot.stores.files import (
    Folder,
    Stamp,
    below,
    locked,
    make_folder,
    opened,
    read_between,
    stamp,
    sync_folder,
    translated,
)
from chatbot.stores.home import Address, Home
from chatbot.stores.log import Hands, Piece, Shelf

_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class Cache:
    """Folder of the caches for the memory in `home`, created when needed."""

    def __init__(self, home: Home, root: Path | None = None) -> None:
        self._home = home
        self._given_root = root

    @cached_property
    def _root(self) -> Path:
        return self._given_root or user_cache_path("chatbot")

    @cached_property
    def folder(self) -> Path:
        """The folder, computed on first use: most sessions are opened without a cache."""
        where = str(self._home) if isinstance(self._home, Address) else self._home.resolve()
        return self._root / blake2b(os.fsencode(where), digest_size=16).hexdigest()

    def prepare(self) -> Path:
        """Return the folder, created if needed. Raises a `StoreError` if it is not private or cannot be made."""
        for folder in (self._root, self.folder):
            make_folder(folder)
            _check_ours(folder)
        return self.folder

    def check(self) -> None:
        """Raise `UnsafePath` if the folder exists and is not private. Creates and changes nothing."""
        for folder in (self._root, self.folder):
            if folder.is_symlink() or folder.exists():
                _check_ours(folder)

    def move_away(self) -> Path:
        """Rename the folder, which is not private, so that a new one can be made; return its new name."""
        aside = self.folder.with_name(f"{self.folder.name}.foreign")
        while _is_there(aside):
            aside = aside.with_name(f"{aside.name}+")
        return self.folder.rename(aside)

    def read(self, name: str) -> bytes:
        """Return the content of a file of the folder; empty if there is none, or if it is not private."""
        with suppress(OSError):
            _check_ours(self.folder)
            with file_piece(self.folder / name) as piece:
                return piece.read(0, piece.size)
        return b""

    def size(self) -> int:
        """Return how many bytes the caches take."""
        found = map(stamp, below(self.folder))
        return sum(each.size for each in found if each is not None)


def _is_there(path: Path) -> bool:
    return path.exists() or path.is_symlink()


def _check_ours(path: Path) -> None:
    status = path.lstat()
    is_odd = not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode))
    if is_odd or status.st_uid != os.geteuid() or status.st_mode & _OTHERS:
        raise UnsafePath(f"{path} is not private: it must be a regular file of this user, closed to other users")


NAME = "manifest.json"
_WRITING = "writing"
_WAITING = "waiting"
_OURS = {NAME, _WRITING, _WAITING, ".lock"}
_WAIT_S = 60.0
_LOCK_S = 10.0


class FolderShelf(Shelf):
    """The folder `folder`, in the folder of `cache` if that is given."""

    def __init__(self, folder: Path, cache: Cache | None = None) -> None:
        self.folder = folder
        self.name = str(folder)
        self._cache = cache

    @classmethod
    def of(cls, cache: Cache, name: str) -> FolderShelf:
        """The shelf of that name in a cache."""
        return cls(cache.folder / name, cache)

    def prepare(self) -> None:
        if self._cache is not None:
            self._cache.prepare()
        for each in (self.folder, self.folder / _WRITING, self.folder / _WAITING):
            make_folder(each)
        if not os.access(self.folder, os.W_OK | os.X_OK):
            raise ReadOnlyFolder(f"{self.folder} cannot be written")

    def stamp(self) -> Stamp | None:
        return stamp(self.folder / NAME)

    def listed(self) -> Any:
        with suppress(OSError, ValueError, RecursionError):
            if self._cache is not None:
                self._cache.check()
            with file_piece(self.folder / NAME) as piece:
                return json.loads(piece.read(0, piece.size))
        return None

    def names(self) -> Collection[str]:
        with opened(self.folder) as folder:
            return [name for name in folder.names() if name not in _OURS]

    @contextmanager
    def opened(self, name: str) -> Iterator[Piece]:
        with file_piece(self.folder / name) as piece:
            yield piece

    @contextmanager
    def alone(self) -> Iterator[Hands]:
        with locked(self.folder, timeout_s=_LOCK_S) as folder:
            yield _FolderHands(folder)

    def making(self, *, wait: bool) -> ExitStack | None:
        """Lock the subfolder for writers, or queue for it if it may wait."""
        with ExitStack() as held:
            try:
                held.enter_context(locked(self.folder / _WRITING, timeout_s=0))
                return held.pop_all()
            except StoreBusy:
                return self._queued() if wait else None

    def clear(self) -> None:
        with translated(self.folder.parent):
            while self.folder.is_symlink() or self.folder.exists():
                with suppress(FileNotFoundError):  # another process removes it too
                    _remove(self.folder)
                    sync_folder(self.folder.parent)

    def _queued(self) -> ExitStack | None:
        with ExitStack() as held:
            try:
                with locked(self.folder / _WAITING, timeout_s=0):
                    held.enter_context(locked(self.folder / _WRITING, timeout_s=_WAIT_S))
            except StoreBusy:
                return None
            return held.pop_all()


class _FolderHands:
    """The lock of the folder. See `Hands`."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder

    def put(self, name: str, data: bytes, *, durable: bool = False) -> None:
        self._folder.replace(name, data, durable=durable)

    def publish(self, value: Any, *, durable: bool = True) -> Stamp | None:
        self._folder.replace(NAME, json.dumps(value).encode(), durable=durable)
        return self._folder.stamp(NAME)

    def remove(self, names: Collection[str]) -> None:
        """Delete files or folders of these names without looking into them."""
        for name in names:
            with suppress(FileNotFoundError):
                _remove(self._folder.path / name)

    def sync(self) -> None:
        self._folder.sync()


class _FilePiece:
    """A descriptor of a file. See `Piece`."""

    def __init__(self, descriptor: int, size: int) -> None:
        self.size = size
        self._descriptor = descriptor

    def read(self, begin: int, end: int) -> bytes:
        return read_between(self._descriptor, begin, end)


@contextmanager
def file_piece(path: Path) -> Iterator[Piece]:
    """Open a private file for reading: no link, no pipe. Raises `OSError` for any other."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & _OTHERS:
            raise PermissionError(f"{path} is not a file that only this user can use")
        yield _FilePiece(descriptor, status.st_size)
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    if path.is_symlink() or not path.is_dir():
        path.unlink()
    else:
        rmtree(path)
