"""The private folder in which an identity's caches live: never in the identity, never shared, always deletable.

What is in it tells what is remembered, so the folder has to be ours alone. Nothing in it is executed: its files are
arrays with checksums, see `chatbot.stores.observations.arrays`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path

from platformdirs import user_cache_path

from chatbot.stores.errors import StoreError, UnsafePath
from chatbot.stores.files import FILE_MODE, below, make_folder, stamp, sync_folder, translated
from chatbot.stores.home import Address, Home

_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class Cache:
    """Return the folder of the caches for the memory in `home`; nothing is created before it is needed."""

    def __init__(self, home: Home, root: Path | None = None) -> None:
        self._root = root or user_cache_path("chatbot")
        where = str(home) if isinstance(home, Address) else home.resolve()
        name = blake2b(os.fsencode(where), digest_size=16).hexdigest()
        self.folder = self._root / name

    def prepare(self) -> Path:
        """The folder, made if need be. Raises a `StoreError` where it is not, or cannot be, ours alone."""
        for folder in (self._root, self.folder):
            make_folder(folder)
            _check_ours(folder)
        return self.folder

    def check(self) -> None:
        """Raise `UnsafePath` where there is such a folder and it is not ours alone. Makes and changes nothing."""
        for folder in (self._root, self.folder):
            if folder.is_symlink() or folder.exists():
                _check_ours(folder)

    def move_away(self) -> Path:
        """Rename the folder, which is not ours alone, so that a new one can be made; returns its new name."""
        aside = self.folder.with_name(f"{self.folder.name}.foreign")
        while _is_there(aside):
            aside = aside.with_name(f"{aside.name}+")
        return self.folder.rename(aside)

    @contextmanager
    def reading(self, name: str) -> Iterator[int | None]:
        """A descriptor of a file in the folder, or None where there is none that is ours alone."""
        try:
            file = self._open(name, os.O_RDONLY)
        except (FileNotFoundError, StoreError):
            yield None
            return
        try:
            yield file
        finally:
            os.close(file)

    @contextmanager
    def changing(self, name: str) -> Iterator[int]:
        """A descriptor to change a file in the folder in place."""
        with translated(self.folder):
            file = self._open(name, os.O_RDWR)
            try:
                yield file
            finally:
                os.close(file)

    def write(self, name: str, data: bytes) -> None:
        """Put a file in the folder, whole or not at all; it need not survive a power cut."""
        folder = self.prepare()
        self.remove(name)
        draft = folder / f".{name}.{os.getpid()}.tmp"
        with translated(folder):
            draft.unlink(missing_ok=True)
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE), "wb") as file:
                file.write(data)
            draft.replace(folder / name)

    def remove(self, name: str) -> None:
        """Delete a file in the folder permanently, with any remains of it from a killed process."""
        with translated(self.folder):
            found = [path for path in (self.folder / name, *self.folder.glob(f".{name}.*.tmp")) if _is_there(path)]
            for path in found:
                path.unlink(missing_ok=True)
            if found:
                sync_folder(self.folder)

    def size(self) -> int:
        """Return how many bytes the caches take."""
        found = map(stamp, below(self.folder))
        return sum(each.size for each in found if each is not None)

    def _open(self, name: str, flags: int) -> int:
        _check_ours(self.folder)
        _check_ours(self.folder / name)
        return os.open(self.folder / name, flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)


def _is_there(path: Path) -> bool:
    return path.exists() or path.is_symlink()


def _check_ours(path: Path) -> None:
    status = path.lstat()
    is_odd = not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode))
    if is_odd or status.st_uid != os.geteuid() or status.st_mode & _OTHERS:
        raise UnsafePath(f"{path} is not private: it must be a regular file of this user, closed to other users")
