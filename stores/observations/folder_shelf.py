"""A shelf as a folder in the cache: a file for each piece, and `manifest.json`, the list.

Three locks, each a folder's: the shelf itself for moments, whenever a name in it changes; `writing` for as long as
pieces are made, until they are published or given up; `waiting` for the one process that may wait for that.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from shutil import rmtree
from typing import Any

from chatbot.stores.cache import Cache
from chatbot.stores.errors import ReadOnlyFolder, StoreBusy
from chatbot.stores.files import Folder, Stamp, locked, make_folder, opened, read_between, stamp, translated
from chatbot.stores.shelf import Hands, Piece, Shelf

NAME = "manifest.json"
_WRITING = "writing"
_WAITING = "waiting"
_OURS = {NAME, _WRITING, _WAITING, ".lock"}
_WAIT_S = 60.0
_LOCK_S = 10.0
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class FolderShelf(Shelf):
    """The folder `folder`, in the folder of `cache` where that is given."""

    def __init__(self, folder: Path, cache: Cache | None = None) -> None:
        self.folder = folder
        self.name = str(folder)
        self._cache = cache

    @classmethod
    def of(cls, cache: Cache, name: str) -> FolderShelf:
        """The shelf of that name in a cache."""
        return cls(cache.folder / name, cache)

    def prepare(self) -> None:
        """Create the folders; raises `ReadOnlyFolder` if they cannot be written."""
        if self._cache is not None:
            self._cache.prepare()
        for each in (self.folder, self.folder / _WRITING, self.folder / _WAITING):
            make_folder(each)
        if not os.access(self.folder, os.W_OK | os.X_OK):
            raise ReadOnlyFolder(f"{self.folder} cannot be written")

    def stamp(self) -> Stamp | None:
        return stamp(self.folder / NAME)

    def listed(self) -> Any:
        with suppress(OSError, ValueError, RecursionError), file_piece(self.folder / NAME) as piece:
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
        """Write the file of a piece atomically."""
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
    """Open a file for reading that is ours alone: no link, no pipe. Raises `OSError` for any other."""
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
