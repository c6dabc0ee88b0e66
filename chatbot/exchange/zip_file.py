"""A zip file from elsewhere, of which nothing is believed: it is never unpacked, only read, within bounds."""

from __future__ import annotations

import stat
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from stores.errors import DamagedFile, UnsafePath

MOST_MEMBERS = 200_000
LARGEST_MEMBER = 1 << 30
LARGEST_TOTAL = 4 << 30
MOST_SQUEEZED = 400
"""How many bytes may come out of one: more is no text, but a bomb."""
_SMALL = 4 << 20
"""Up to this size nobody asks how well it is packed."""


class ZipFile:
    """An open zip file; raises `DamagedFile` or `UnsafePath` for what is not to be read."""

    def __init__(self, path: Path, archive: zipfile.ZipFile) -> None:
        self.path = path
        self._archive = archive
        members = archive.infolist()
        if len(members) > MOST_MEMBERS:
            raise DamagedFile(f"{path} has {len(members):,} members: at most {MOST_MEMBERS:,} are read")
        self._members = {member.filename: member for member in members if not member.is_dir()}
        self._names = Counter(member.filename for member in members)

    @property
    def names(self) -> list[str]:
        """The names of all members but folders."""
        return list(self._members)

    def check_all(self) -> None:
        """Check that every member may be read, and all together."""
        for name in self._names:
            self._check(name)
        total = sum(member.file_size for member in self._members.values())
        if total > LARGEST_TOTAL:
            raise DamagedFile(f"{self.path} would unpack to {total:,} bytes: at most {LARGEST_TOTAL:,} are read")

    def read(self, name: str) -> bytes:
        """A member, whole. Raises `DamagedFile` or `UnsafePath`."""
        member = self._check(name)
        try:
            with self._archive.open(member) as file:
                data = file.read(member.file_size + 1)
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError) as error:
            raise DamagedFile(f"{self.path}: {name} cannot be read: {error}") from error
        if len(data) != member.file_size:
            raise DamagedFile(f"{self.path}: {name} is not as long as it says")
        return data

    def _check(self, name: str) -> zipfile.ZipInfo:
        if self._names[name] > 1:
            raise DamagedFile(f"{self.path} holds {name!r} more than once")
        if is_hostile(name):
            raise UnsafePath(f"{self.path} holds {name!r}, which leads out of its folder")
        member = self._members.get(name) or self._archive.getinfo(name)
        if stat.S_ISLNK(member.external_attr >> 16):
            raise UnsafePath(f"{self.path}: {name!r} is a link, which could lead anywhere")
        if member.flag_bits & 1:
            raise DamagedFile(f"{self.path}: {name!r} is encrypted: unpack it with its password first")
        squeezed = member.file_size > _SMALL and member.file_size > MOST_SQUEEZED * max(1, member.compress_size)
        if member.file_size > LARGEST_MEMBER or squeezed:
            raise DamagedFile(
                f"{self.path}: {name!r} would unpack to {member.file_size:,} bytes, which is not to be read"
            )
        return member


@contextmanager
def opened_zip(path: Path) -> Iterator[ZipFile]:
    """Open a zip file. Raises `DamagedFile` where it is none."""
    try:
        archive = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise DamagedFile(f"{path} is no readable zip file: {error}") from error
    with archive:
        yield ZipFile(path, archive)


def is_hostile(name: str) -> bool:
    """Whether a name would lead elsewhere on some system."""
    path = PurePosixPath(name)
    return (
        path.is_absolute()
        or ".." in path.parts
        or "\\" in name
        or ":" in name
        or not name
        or any(not char.isprintable() for char in name)
    )
