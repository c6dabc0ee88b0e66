"""Places through which machines sync: folders, plain or encrypted, single files, and servers. None is trusted."""

import os
import re
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from http.client import HTTPException
from pathlib import Path
from typing import Annotated, Any, BinaryIO
from urllib.error import HTTPError
from urllib.parse import SplitResult, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

import msgspec
from msgspec.structs import asdict

from chatbot.errors import ConfigError
from chatbot.stores.backend import Backend
from chatbot.stores.errors import MISFITS, DamagedFile, MissingFolder, StoreFailed
from chatbot.stores.fields import how_many
from chatbot.stores.files import FOLDER_MODE, opened, translated
from chatbot.stores.home import without_password
from chatbot.stores.records import real_path
from chatbot.transfer.untrusted import VERSION, content_of, open_zip

NAME, KEY = "chatbot-sync.json", "key.age"
IdentityMark = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{0,40}$")]
SECRETS = "sync.key"
"""The document with the keys of encrypted places."""
_MACHINE = re.compile("[0-9a-f]{12}")
_LARGEST_FILE = 256 << 20
_LARGEST_ANSWER = 1 << 30
_LARGEST_REASON = 64 << 10
_LONGEST_WAIT_S = 300.0


class Visitor(msgspec.Struct, frozen=True):
    """The visitor of a place: its identity, if known, its machine, and the files that it has taken in already."""

    identity: str = ""
    machine: str = ""
    taken: Sequence[str] = ()
    dry_run: bool = False


class PlaceHead(msgspec.Struct):
    """Contents of `chatbot-sync.json`."""

    identity: IdentityMark
    version: int = VERSION


class RefusedFile(msgspec.Struct):
    """A file that was not taken in."""

    file: str
    why: str


_WORDS = {"memories": "memory", "sessions": "session", "calls": "billed call", "erased": "erasure"}


class SyncReport(msgspec.Struct):
    """Result of a sync: the counts taken and given, and the refused files with reasons."""

    place: str
    dry_run: bool = False
    is_new: bool = False
    taken: dict[str, int] = msgspec.field(default_factory=lambda: dict.fromkeys(_WORDS, 0))
    given: dict[str, int] = msgspec.field(default_factory=lambda: dict.fromkeys(_WORDS, 0))
    forks: list[str] = []
    """Sessions that were forked because both sides had continued one."""
    aside: list[RefusedFile] = []

    def set_aside(self, what: str, why: str) -> None:
        """Report, once, what is not synced."""
        if (refused := RefusedFile(what, why)) not in self.aside:
            self.aside.append(refused)


def acceptable(
    records: Iterable[dict[str, Any]], check: Callable[[dict[str, Any]], object], name: str, aside: list[RefusedFile]
) -> list[dict[str, Any]]:
    """Return our records that other machines will accept; invalid ones, such as after a hand edit, are set aside."""
    found = []
    for each in records:
        try:
            check(each)
        except MISFITS as error:
            aside.append(RefusedFile(name, str(error)))
        else:
            found.append(each)
    return found


def counts_text(counts: Mapping[str, int]) -> str:
    """Return the counts in words."""
    return ", ".join(how_many(count, _WORDS[what]) for what, count in counts.items())


class ServerAnswer(msgspec.Struct):
    """Answer of a server, which has the files that are new to the other machine."""

    identity: IdentityMark
    files: dict[str, bytes]
    """Files by name; in base64 when sent."""
    taken: list[str]
    """Names of the other machine's files that were merged."""
    aside: list[RefusedFile]


class SyncPlace(ABC):
    """Files by name; a name is one word, or two with a slash between them."""

    key: str
    """Name by which the place is known."""
    keeps = False
    """True if written files stay; False if they go to another machine, which takes them in."""

    def meet(self, visitor: Visitor) -> None:  # noqa: B027 - nothing to do where nobody answers
        """Introduce the visitor, before anything else."""

    @abstractmethod
    def names(self) -> list[str]:
        """Return the names of all files."""

    @abstractmethod
    def read(self, name: str) -> bytes:
        """Return a file. Raises `OSError`."""

    @abstractmethod
    def write(self, name: str, data: bytes) -> None:
        """Put a file, whole or not at all. Raises `OSError`."""

    def drop(self, name: str) -> None:  # noqa: B027 - nothing to do where files are not kept
        """Delete a file; a missing one is no error."""


class FolderPlace(SyncPlace):
    """A folder, such as one of a USB stick, Syncthing or a cloud drive."""

    keeps = True

    def __init__(self, folder: Path) -> None:
        self.folder = real_path(folder)  # it may be a link itself, but its files may not
        self.key = str(self.folder)

    def names(self) -> list[str]:
        """List the files of the folder and its subfolders, except hidden ones; an unreadable subfolder as one file."""
        if not self.folder.is_dir():
            raise MissingFolder(f"{self.folder} is not there: connect the drive, or make the folder")
        paths = [path for pattern in ("*", "*/*") for path in self.folder.glob(pattern)]
        files = [path for path in paths if path.is_file()]
        files += [path / "*.gz" for path in paths if _MACHINE.fullmatch(path.name) and not os.access(path, os.R_OK)]
        found = (path.relative_to(self.folder) for path in files)
        return sorted(str(path) for path in found if not any(part.startswith(".") for part in path.parts))

    def read(self, name: str) -> bytes:
        """Read a file. Raises for a symbolic link, and `DamagedFile` for a file that is too large."""
        path = self.folder / name
        with opened(path.parent) as folder:
            if (stamp := folder.stamp(path.name)) and stamp.size > _LARGEST_FILE:
                raise DamagedFile(f"{name} is larger than {_LARGEST_FILE >> 20} MiB")
            return folder.read(path.name, may_be_linked=True)  # backups of a place may be hard links

    def write(self, name: str, data: bytes) -> None:
        """Replace a file. Not durable on return: not every drive supports that."""
        path = self.folder / name
        with translated(path.parent):
            path.parent.mkdir(FOLDER_MODE, exist_ok=True)
        with opened(path.parent) as folder:
            folder.replace(path.name, data, durable=False)

    def drop(self, name: str) -> None:
        path = self.folder / name
        with opened(path.parent) as folder:
            folder.remove(path.name)


class ArchivePlace(SyncPlace):
    """One file, a zip archive with uncompressed members, that is written once and then only read."""

    keeps = True

    def __init__(self, file: BinaryIO, key: str, *, is_new: bool = False) -> None:
        """Open it. Raises `DamagedFile`."""
        self.key = key
        self._zip = zipfile.ZipFile(file, "w") if is_new else open_zip(file, key)

    def names(self) -> list[str]:
        return self._zip.namelist()

    def read(self, name: str) -> bytes:
        """Read a member. Raises `KeyError`, or `DamagedFile` for one that is too large, compressed or encrypted."""
        member = self._zip.getinfo(name)
        if member.file_size > _LARGEST_FILE or member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 1:
            raise DamagedFile(f"{name} is larger than {_LARGEST_FILE >> 20} MiB, compressed or encrypted")
        return content_of(self._zip, member)

    def write(self, name: str, data: bytes) -> None:
        self._zip.writestr(zipfile.ZipInfo(name), data)

    def close(self) -> None:
        """Write the end of the archive."""
        self._zip.close()

    def abandon(self) -> None:
        """Leave an archive that is not complete without its end."""
        self._zip.fp = None


class ParcelPlace(SyncPlace):
    """Files received from another machine, and `new` files to send back to it."""

    def __init__(self, visitor: Visitor, files: Mapping[str, bytes]) -> None:
        self.key = f"machine {visitor.machine}"
        self.new: dict[str, bytes] = {}
        self._receive(visitor.identity, files, visitor.taken)

    def _receive(self, identity: str, files: Mapping[str, bytes], taken: Sequence[str]) -> None:
        self.identity, self._files, self._taken = identity, dict(files), taken
        if identity:
            self._files[NAME] = msgspec.json.encode(PlaceHead(identity))

    def names(self) -> list[str]:
        """List the files from the other machine, and our files that it has taken in."""
        return [*self._files, *self._taken]

    def read(self, name: str) -> bytes:
        if name not in self._files:
            raise DamagedFile(f"{name} is not here any more")
        return self._files[name]

    def write(self, name: str, data: bytes) -> None:
        self.new[name] = data


class _NoRedirect(HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


def parse_server(url: str) -> SplitResult:
    """Return the parts of a server's address. Raises `ConfigError`."""
    with suppress(ValueError):  # such as a bracket that is not closed
        split = urlsplit(url)
        if split.scheme in {"http", "https"} and split.hostname and "@" not in split.netloc:
            return split
    raise ConfigError(f"{without_password(url)} is neither a folder nor the address of a server (https://HOST:PORT)")


class ServerPlace(ParcelPlace):
    """Another `chatbot serve`, which returns its new files and takes in those that it gets."""

    def __init__(self, url: str, token: str = "") -> None:
        split = parse_server(url)
        super().__init__(Visitor(), {})
        self.key = url
        self._address = split._replace(path=split.path.rstrip("/") + "/v1/sync", fragment="").geturl()
        self._headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})

    def meet(self, visitor: Visitor) -> None:
        """Ask for the server's new files."""
        self._visitor = visitor
        answer = self._ask({})
        self._receive(answer.identity, answer.files, answer.taken)

    def write(self, name: str, data: bytes) -> None:
        """Send a file. Raises `StoreFailed` if it is refused."""
        self._ask({name: data})

    def _ask(self, files: Mapping[str, bytes]) -> ServerAnswer:
        identity = self._visitor.identity or self.identity
        answer = self._answer(asdict(self._visitor) | {"identity": identity, "files": files})
        if answer.aside:
            raise StoreFailed(f"{self.key} refused a file of ours: {answer.aside[0].why}")
        return answer

    def _answer(self, body: dict[str, Any]) -> ServerAnswer:
        request = Request(self._address, msgspec.json.encode(body), self._headers)  # noqa: S310 - http or https
        try:
            with build_opener(_NoRedirect()).open(request, timeout=_LONGEST_WAIT_S) as answer:
                return msgspec.json.decode(answer.read(_LARGEST_ANSWER), type=ServerAnswer)  # a larger one is cut off
        except HTTPError as error:
            raise ConfigError(f"{self.key}: {_why(error)}") from error
        except (OSError, HTTPException, ValueError, RecursionError) as error:
            reason = getattr(error, "reason", error)
            raise StoreFailed(f"cannot sync with {self.key}: {getattr(reason, 'strerror', '') or reason}") from error


def _why(error: HTTPError) -> str:
    try:
        with error:
            return str(msgspec.json.decode(error.read(_LARGEST_REASON))["error"]["message"])
    except (OSError, HTTPException, ValueError, LookupError, TypeError, RecursionError):
        return f"the server answered with the status {error.code}: is it `chatbot serve`?"


class _SealedFolder(FolderPlace):
    """A folder whose files are encrypted in the format of age; its key is in it, sealed by a passphrase."""

    def __init__(self, folder: Path, secret: str) -> None:
        super().__init__(folder)
        self._age = _age()
        self._identity = self._age.x25519.Identity.from_str(secret)

    def read(self, name: str) -> bytes:
        data = super().read(name)
        try:
            return data if name == NAME else self._age.decrypt(data, [self._identity])
        except self._age.DecryptError as error:
            raise DamagedFile(f"it cannot be decrypted: {error}") from error

    def write(self, name: str, data: bytes) -> None:
        super().write(name, data if name == NAME else self._age.encrypt(data, [self._identity.to_public()]))


def open_sealed(place: FolderPlace, backend: Backend, passphrase: Callable[[], str] | None) -> FolderPlace:
    """Return the folder; one that encrypts if it holds a key, or if a passphrase is given to make one.

    A machine needs the passphrase once: it then keeps the key in a document that is never copied. Raises
    `ConfigError` if it is required and missing, or wrong, or if the folder has files but no key that fits them.
    """
    document = backend.document(SECRETS)
    try:
        secrets = msgspec.json.decode(document.read() or b"{}", type=dict[str, str])
    except (ValueError, RecursionError) as error:
        raise DamagedFile(f"{document.name} cannot be read: {error}. Delete it, and pass --passphrase again") from error
    (secret, _, sealed), names = secrets.get(place.key, "").partition(" "), place.names()
    if passphrase is None:
        if secret and KEY not in names:
            raise ConfigError(f"{KEY} is missing in {place.key}: put it back, or pass --passphrase to write it again")
        if KEY in names and sealed != _digest(place):
            raise ConfigError(f"{place.key} is encrypted with a key that this machine does not have: pass --passphrase")
        return _SealedFolder(place.folder, secret) if secret else place
    if KEY in names:
        try:
            secret = str(_age().passphrase.decrypt(place.read(KEY), passphrase()).decode())
        except _age().DecryptError as error:
            raise ConfigError(f"wrong passphrase for {place.key}: {error}") from error
    elif secret or NAME not in names:
        secret = secret or str(_age().x25519.Identity.generate())
        if not (asked := passphrase()):
            raise ConfigError("the passphrase is empty: nothing was written")
        place.write(KEY, _age().passphrase.encrypt(secret.encode(), asked))
    else:
        raise ConfigError(f"{place.key} holds files that are not encrypted: use an empty folder")
    document.change(lambda _: msgspec.json.encode(secrets | {place.key: f"{secret} {_digest(place)}"}))
    return _SealedFolder(place.folder, secret)


def _digest(place: FolderPlace) -> str:
    return sha256(place.read(KEY)).hexdigest()


def _age() -> Any:
    """Return the package that encrypts in the format of age. Raises `ConfigError` if it is not installed."""
    try:
        import pyrage
    except ModuleNotFoundError as error:
        raise ConfigError("encryption needs the package pyrage: pip install 'chatbot-runtime[sync]'") from error
    return pyrage
