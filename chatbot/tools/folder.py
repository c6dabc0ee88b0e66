"""A folder that a model may work in: every name is opened step by step from the folder, and no link is followed.

A file with another name, a hard link, is none of the folder's, for that name may be outside.

So nothing outside of it can be read or written, whatever a path says, even if a folder is swapped for a link meanwhile.
Names that begin with a dot are out of reach: they hold keys, settings and programs that run by themselves.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from chatbot.errors import ToolError

LARGEST = 1 << 20
"""Bytes of a file that is read or written."""
MOST_FILES = 5_000
"""Files that a search looks at."""
_DEEPEST = 32
_SAFELY = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # the last flag keeps a pipe in place of a file from blocking
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class FolderEntry:
    """A file or a folder; the size of a folder is None."""

    path: str
    size: int | None


class WorkFolder:
    """The folder `root`. Paths are relative to it, with "/" between names. Blocking; errors are `ToolError`."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def read(self, path: str) -> str:
        """Return the text of a file."""
        parent, name = self._split(path)
        with self._opened(parent) as folder, _told(path):
            return _decoded(path, _read(folder, name, path))

    def entries(self, path: str) -> list[FolderEntry]:
        """Return what is in a folder, sorted by name."""
        parts = _parts(path)
        with self._opened(parts) as folder:
            return list(_listed(folder, parts))

    def files(self, path: str) -> Iterator[str]:
        """Yield the paths of all files below a folder, as far as `MOST_FILES`."""
        waiting, found = [_parts(path)], 0
        while waiting and found < MOST_FILES:
            parts = waiting.pop(0)
            with self._opened(parts) as folder:
                listed = list(_listed(folder, parts))
            for each in listed:
                if each.size is None and len(parts) < _DEEPEST:
                    waiting.append(each.path.split("/"))
                elif each.size is not None and found < MOST_FILES:
                    found += 1
                    yield each.path

    def write(self, path: str, text: str) -> bool:
        """Write a file whole or not at all, with the folders that it needs; returns whether there was one before."""
        parent, name = self._split(path)
        data = _encoded(path, text)
        if len(data) > LARGEST:
            raise ToolError(f"{path!r}: {len(data):,} bytes are more than may be written ({LARGEST:,})")
        with self._opened(parent, makes=True) as folder, _told(path):
            mode = _mode(folder, name, path)
            draft = f".{secrets.token_hex(8)}.tmp"
            file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFELY, mode or 0o600, dir_fd=folder)
            try:
                with os.fdopen(file, "wb") as opened:
                    opened.write(data)
                    opened.flush()
                    os.fsync(file)
                os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
            except OSError:
                os.unlink(draft, dir_fd=folder)
                raise
            return mode is not None

    def _split(self, path: str) -> tuple[list[str], str]:
        parts = _parts(path)
        if not parts:
            raise ToolError("name a file in the folder, such as notes/today.md")
        return parts[:-1], parts[-1]

    @contextmanager
    def _opened(self, parts: list[str], *, makes: bool = False) -> Iterator[int]:
        """Open a folder below the root, step by step; make the missing ones where that is wanted."""
        with _told("/".join(parts) or "."):
            folder = os.open(self.root, _FOLDER)
            try:
                for part in parts:
                    if makes:
                        _make(folder, part)
                    inner = os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
                    os.close(folder)
                    folder = inner
                yield folder
            finally:
                os.close(folder)


def plain_path(path: str) -> str:
    """Return a path in its one form. Raises `ToolError` for one that leads elsewhere."""
    return "/".join(_parts(path))


def _parts(path: str) -> list[str]:
    """Return the names in a path. Raises `ToolError` for one that leads elsewhere."""
    parts = [part for part in path.strip().split("/") if part not in {"", "."}]
    if path.strip().startswith(("/", "~")) or "\\" in path or "\0" in path or ".." in parts:
        raise ToolError(f"{path!r:.200} leads out of the folder: give a path within it, such as notes/today.md")
    if any(part.startswith(".") for part in parts):
        raise ToolError(f"{path!r:.200} is hidden: names that begin with a dot are out of reach")
    if len(parts) > _DEEPEST:
        raise ToolError(f"{path!r:.200} is too deep")
    _encoded(path, path)
    return parts


def _listed(folder: int, parts: list[str]) -> Iterator[FolderEntry]:
    for name in sorted(os.listdir(folder)):
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        path = "/".join([*parts, name])
        if name.startswith(".") or not (_is_file(status) or stat.S_ISDIR(status.st_mode)):
            continue
        yield FolderEntry(path, None if stat.S_ISDIR(status.st_mode) else status.st_size)


def _read(folder: int, name: str, path: str) -> bytes:
    file = os.open(name, os.O_RDONLY | _SAFELY, dir_fd=folder)
    with os.fdopen(file, "rb") as opened:
        status = os.fstat(file)
        if not _is_file(status):
            raise ToolError(f"{path!r} is not a file, or a link, which is not followed")
        if status.st_size > LARGEST:
            raise ToolError(f"{path!r} has {status.st_size:,} bytes, more than may be read ({LARGEST:,})")
        return opened.read(LARGEST)


def _is_file(status: os.stat_result) -> bool:
    return stat.S_ISREG(status.st_mode) and status.st_nlink == 1


def _encoded(path: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair, as JSON can write it
        raise ToolError(f"{path!r:.200}: that is not valid Unicode") from None


def _decoded(path: str, data: bytes) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise ToolError(f"{path!r} is not text in UTF-8") from None
    if "\0" in text:
        raise ToolError(f"{path!r} is not text")
    return text


def _mode(folder: int, name: str, path: str) -> int | None:
    """Return the mode of the file that is replaced; None where there is none."""
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not _is_file(status):
        raise ToolError(f"{path!r} is not a file, or a link: it is not replaced")
    return status.st_mode & 0o777  # without set-uid: what it runs is another text now


def _make(folder: int, name: str) -> None:
    try:
        os.mkdir(name, 0o700, dir_fd=folder)
    except FileExistsError:
        return


@contextmanager
def _told(path: str) -> Iterator[None]:
    """Tell the model what the operating system says, without where the folder is."""
    try:
        yield
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENOTDIR}:
            raise ToolError(f"{path!r:.200} is a link or no folder: links are not followed") from None
        raise ToolError(f"{path!r:.200}: {(error.strerror or 'it cannot be opened').lower()}") from None
