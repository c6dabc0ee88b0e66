"""Places through which machines sync: folders, plain or encrypted, and single files, as a backup is one.

A place is not trusted, and need not be there at all times. What is written to it is there as a whole or not at all.
"""

from __future__ import annotations

import json
import secrets
import zipfile
import zlib
from collections.abc import Callable, Collection
from pathlib import Path
from typing import BinaryIO, Protocol

from chatbot.errors import ConfigError
from chatbot.stores.backend import Backend
from chatbot.stores.errors import DamagedFile, MissingFolder

NAME, KEY = "chatbot-sync.json", "key.age"
SECRETS = "sync.key"
"""The document with the keys of places that are encrypted."""
_LARGEST_FILE = 256 << 20


class SyncPlace(Protocol):
    """Files by name, where a name is one word or two with a slash between them."""

    key: str
    """Name by which the place is known."""
    keeps: bool
    """True if what was written is there later; False if it goes to another machine, which takes it in."""

    def names(self, machine: str = "", taken: Collection[str] = ()) -> list[str]:
        """Return the names of all files, for a machine that has taken some in already."""

    def read(self, name: str) -> bytes:
        """Return a file. Raises `OSError`."""

    def write(self, name: str, data: bytes) -> None:
        """Put a file, whole or not at all. Raises `OSError`."""

    def drop(self, name: str) -> None:
        """Delete a file; one that is not there is no error."""

    def finish(self, taken: Collection[str]) -> None:
        """Deliver what was written, with the names of the files that were taken in, where it goes to a machine."""


class FolderPlace:
    """A folder: of a stick, of Syncthing, of a cloud drive."""

    keeps = True

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.key = str(folder.absolute())

    def names(self, machine: str = "", taken: Collection[str] = ()) -> list[str]:  # noqa: ARG002 - for servers
        """List the folder and the folders in it, without links and hidden files."""
        if not self.folder.is_dir():
            raise MissingFolder(f"{self.folder} is not there: connect the drive, or make the folder")
        paths = (path for pattern in ("*", "*/*") for path in self.folder.glob(pattern))
        found = (path.relative_to(self.folder) for path in paths if path.is_file() and not path.is_symlink())
        return sorted(str(path) for path in found if not any(part.startswith(".") for part in path.parts))

    def read(self, name: str) -> bytes:
        """Read a file that is not too large."""
        with (self.folder / name).open("rb") as file:
            data = file.read(_LARGEST_FILE + 1)
        if len(data) > _LARGEST_FILE:
            raise DamagedFile(f"{name} is larger than {_LARGEST_FILE >> 20} MiB")
        return data

    def write(self, name: str, data: bytes) -> None:
        """Write a hidden draft and rename it."""
        path = self.folder / name
        path.parent.mkdir(mode=0o700, exist_ok=True)
        draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
        try:
            draft.write_bytes(data)
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)

    def drop(self, name: str) -> None:
        """Delete a file."""
        (self.folder / name).unlink(missing_ok=True)

    def finish(self, taken: Collection[str]) -> None:
        """Do nothing: a folder keeps what is written to it."""


class FilePlace:
    """One file, a zip archive, that is written once and then only read. Its members are stored in order."""

    keeps = False

    def __init__(self, file: BinaryIO, key: str, *, is_new: bool = False) -> None:
        """Open it. Raises `DamagedFile`."""
        self.key = key
        try:
            self._zip = zipfile.ZipFile(file, "w" if is_new else "r")
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
            raise DamagedFile(f"{key} cannot be read: {error}") from error

    def names(self, machine: str = "", taken: Collection[str] = ()) -> list[str]:  # noqa: ARG002 - for servers
        """List the members."""
        return self._zip.namelist()

    def read(self, name: str) -> bytes:
        """Read a member, which is stored as it is and not too large."""
        try:
            member = self._zip.getinfo(name)
            if member.file_size > _LARGEST_FILE or member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 1:
                raise DamagedFile(f"{name} is larger than {_LARGEST_FILE >> 20} MiB, compressed or encrypted")
            return self._zip.read(member)
        except (zipfile.BadZipFile, zlib.error, EOFError, KeyError, ValueError, RuntimeError) as error:
            raise DamagedFile(f"{name} cannot be read: {error}") from error

    def write(self, name: str, data: bytes) -> None:
        """Add a member."""
        self._zip.writestr(zipfile.ZipInfo(name), data)

    def drop(self, name: str) -> None:
        """Do nothing: what was written stays."""

    def finish(self, taken: Collection[str] = ()) -> None:  # noqa: ARG002 - for servers
        """Write the end of the archive, or close it."""
        self._zip.close()


class _SealedPlace:
    """A place that reads nothing: its files are encrypted in the format of age, for a key that it keeps sealed."""

    def __init__(self, place: SyncPlace, secret: str) -> None:
        self._place = place
        self._secret = secret
        self.key, self.keeps = place.key, place.keeps
        self.drop, self.finish = place.drop, place.finish

    def names(self, machine: str = "", taken: Collection[str] = ()) -> list[str]:
        """List what is not the key."""
        return [name for name in self._place.names(machine, taken) if name != KEY]

    def read(self, name: str) -> bytes:
        """Decrypt a file."""
        from pyrage import DecryptError, decrypt, x25519

        data = self._place.read(name)
        try:
            return data if name == NAME else decrypt(data, [x25519.Identity.from_str(self._secret)])
        except DecryptError as error:
            raise DamagedFile(f"it cannot be decrypted: {error}") from error

    def write(self, name: str, data: bytes) -> None:
        """Encrypt a file."""
        from pyrage import encrypt, x25519

        recipient = x25519.Identity.from_str(self._secret).to_public()
        self._place.write(name, data if name == NAME else encrypt(data, [recipient]))


def sealed(place: SyncPlace, backend: Backend, passphrase: Callable[[], str] | None) -> SyncPlace:
    """Return the place, or one that encrypts where there is a key in it, or where a passphrase is given for a new one.

    The passphrase is asked once: its key is then known to this machine, in a document that is never copied. Raises
    `ConfigError` where it is needed and not given, or wrong, or comes too late for what is there already.
    """
    document = backend.document(SECRETS)
    secrets_of = json.loads(document.read() or b"{}")
    if place.key in secrets_of:
        return _SealedPlace(place, secrets_of[place.key])
    names = place.names()
    if passphrase is None:
        if KEY in names:
            raise ConfigError(f"{place.key} is encrypted: pass --passphrase")
        return place
    try:
        from pyrage import DecryptError, x25519
        from pyrage import passphrase as by_passphrase
    except ModuleNotFoundError as error:
        raise ConfigError("encryption needs the package pyrage: pip install 'chatbot-runtime[sync]'") from error
    if KEY not in names:
        if NAME in names:
            raise ConfigError(f"{place.key} holds files that are not encrypted: use an empty folder")
        secret = str(x25519.Identity.generate())
        if not (asked := passphrase()):
            raise ConfigError("the passphrase is empty: nothing was written")
        place.write(KEY, by_passphrase.encrypt(secret.encode(), asked))
    else:
        try:
            secret = by_passphrase.decrypt(place.read(KEY), passphrase()).decode()
        except DecryptError as error:
            raise ConfigError(f"the passphrase is not that of {place.key}: {error}") from error
    document.change(lambda _: json.dumps(secrets_of | {place.key: secret}).encode())
    return _SealedPlace(place, secret)
