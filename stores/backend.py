"""Contract of a backend: all that an identity keeps except memories, transcripts and key-values.

A `Place` keeps `Lines`, `Document`, `Lease` and `Blobs` by name. A `Backend` is the place of an identity with its
catalog of `Sessions`, each with a place of its own. Bill, tokens, receipts and the like are implemented over these,
once for all engines. All methods block: async callers hop into a thread once for each operation.
"""

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

from msgspec import Struct, field

from chatbot.stores.errors import DamagedFile, StoreError, UnsafePath, UnsupportedOperation
from chatbot.stores.records import SessionRecord, SessionRef


class Flaw(Struct, frozen=True):
    """Result of one check: "ok", a note, or a fault."""

    subject: str
    state: Literal["ok", "note", "bad"]
    message: str
    command: str = ""
    """Shell command that repairs or shows it."""
    mend: Callable[[], str] | None = None
    """Repairs it, and returns what was done; damaged data is set aside first, whole. Blocking."""
    is_later: bool = False
    """True if it was written by a later release."""


Record = dict[str, Any]
"""One JSON object."""
RecordChange = Callable[[Record], Record | None]
"""Returns the replacement of a record; None leaves it out."""

ATTACHMENTS = "attachments"
"""Name of the blobs of a session: the files that its messages name."""

Mark = object
"""Position up to which some lines were read. Its meaning is the engine's."""


class Reading(Struct, frozen=True):
    """Records that were added since a mark, oldest first, and the mark after them."""

    records: list[Record]
    mark: Mark
    starts_over: bool
    """True if the records are from the beginning: the first reading, or the lines before were rewritten."""
    may_go_on: bool = True
    """False if there are no more."""


class RecordWriter(Protocol):
    """Exclusive access to change lines."""

    def append(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Add records at the end, next to each other. Durable on return."""

    def rewrite(self, change: RecordChange, *, holding: Collection[str] = ()) -> None:
        """Replace each record by what `change` makes of it; None leaves it out. Durable on return.

        With `holding`, only records that hold one of these texts are given to `change`. An engine whose test kit says
        `erasure = "bytes"` keeps no byte of what is left out.
        """


class Lines(ABC):
    """Records in order, such as receipts and the bill; only appended to, except when erasing and tidying up."""

    @abstractmethod
    def alone(self) -> AbstractContextManager[RecordWriter]:
        """Lock these lines for changes, among all threads and processes. Not to be nested."""

    @abstractmethod
    def newest_first(self) -> Iterator[Record]:
        """Yield every record, the newest first; reads no further back than it is asked to."""

    @abstractmethod
    def since(self, mark: Mark | None) -> Reading:
        """Return the records after the mark; from the beginning if it is None or of lines that were rewritten since.

        May return only the first ones: ask again until the answer is empty or `may_go_on` is false.
        """

    def append(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Add records at the end, next to each other. Durable on return."""
        with self.alone() as writer:
            writer.append(records)

    def rewrite(self, change: RecordChange, *, holding: Collection[str] = ()) -> None:
        """Replace each record by what `change` makes of it; see `RecordWriter`."""
        with self.alone() as writer:
            writer.rewrite(change, holding=holding)

    def all(self) -> list[Record]:
        """Return every record, oldest first; an empty list if there are none."""
        return list(self.newest_first())[::-1]

    def holds(self, name: str, values: Collection[str]) -> bool:
        """Return whether the field `name` of any record has one of these values."""
        return any(record.get(name) in values for record in self.newest_first())


class Document(ABC):
    """One small value, replaced as a whole, such as tokens or reservations."""

    name: str
    """Name in messages."""

    @abstractmethod
    def read(self) -> bytes | None:
        """Return the value; None if there is none. Returns the same object while it is unchanged, and is cheap."""

    @abstractmethod
    def change(self, change: Callable[[bytes | None], bytes], *, durable: bool = True) -> bytes:
        """Replace the value by the result of `change`, exclusively, and return it; `durable`: durable on return."""

    @abstractmethod
    def set_aside(self) -> str:
        """Rename the value, so that it is neither read nor overwritten; returns its new name, empty for no value."""


class Lease(ABC):
    """The exclusive right to do something, such as a turn, among all threads and processes. Ends with its process."""

    @abstractmethod
    def take(self) -> bool:
        """Take it without waiting; False if it is held elsewhere."""

    def take_with(self, reads: Sequence[object]) -> bool:
        """Take it and make the reads of `Store.turn_reads`, in one step if each takes a round trip."""
        return self.take()

    @abstractmethod
    def release(self) -> None:
        """Release it. No error if it is not held."""

    def is_free(self) -> bool:
        """Return whether nobody holds it; not for a lease that was taken through this object."""
        if is_free := self.take():
            self.release()
        return is_free


_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


def checked_name(name: str) -> str:
    """Return the name of lines, a document, a lease or blobs. Raise `UnsafePath` for any other text."""
    if not _NAME.fullmatch(name):
        raise UnsafePath(f"{name!r} is not a valid name: use lower-case letters, digits, '.', '_', '-'")
    return name


_BLOB = re.compile(r"[0-9a-f]{32}(\.[a-z0-9]{1,8})?")


def blob_name(data: bytes, suffix: str = "") -> str:
    """Return the name of a blob: the first 128 bits of the SHA-256 of its content, in hex, and its suffix.

    The suffix is empty or a dot with at most 8 lower-case letters and digits. Raises `UnsafePath` for any other.
    """
    return checked_blob_name(hashlib.sha256(data).hexdigest()[:32] + suffix)


def suffix_of(name: str) -> str:
    """Return the suffix of the name of a blob."""
    return name[32:]


def is_blob_name(name: str) -> bool:
    """Return whether `name` has the form of `blob_name`."""
    return _BLOB.fullmatch(name) is not None


def checked_blob_name(name: str) -> str:
    """Return `name` if it has the form of `blob_name`; raise `UnsafePath` if not."""
    if not is_blob_name(name):
        raise UnsafePath(f"{name!r:.80} is not the name of an attachment: 32 hex digits and a short suffix")
    return name


def is_content_of(name: str, data: bytes) -> bool:
    """Return whether `data` is the content of the blob of that name."""
    return blob_name(data, suffix_of(name)) == name


def checked_blob(name: str, data: bytes) -> bytes:
    """Return `data` if it is the content of the blob of that name; raise `DamagedFile` if not."""
    if not is_content_of(name, data):
        raise DamagedFile(f"{name} was changed: its content does not match its name")
    return data


class Blobs(ABC):
    """Bytes named by their content, kept once, never changed. Raises `UnsafePath` for a name of another form."""

    @abstractmethod
    def put(self, data: bytes, suffix: str = "") -> str:
        """Keep `data`, and return its name. Durable on return; putting it again changes nothing."""

    @abstractmethod
    def read(self, name: str) -> bytes | None:
        """Return the content; None if there is none. Raises `DamagedFile` for content that was changed."""

    @abstractmethod
    def sizes(self) -> dict[str, int]:
        """Return the size in bytes of each blob by its name, sorted by name; reads no content."""

    @abstractmethod
    def drop(self, name: str) -> None:
        """Erase a blob. Durable on return; a missing one is no error."""


class Place(ABC):
    """Place where lines, documents, leases and blobs are kept by name. Safe between threads and processes.

    Names are lower-case words of letters, digits, "_", "-" and "."; nothing is made before it is first written.
    """

    name: str
    """Name in messages."""

    @abstractmethod
    def lines(self, name: str) -> Lines:
        """Return the lines of that name."""

    @abstractmethod
    def document(self, name: str) -> Document:
        """Return the document of that name."""

    @abstractmethod
    def lease(self, name: str) -> Lease:
        """Return a new lease of that name, not taken yet."""

    @abstractmethod
    def blobs(self, name: str) -> Blobs:
        """Return the blobs of that name."""

    def exposed(self) -> Iterator[Flaw]:
        """Yield a flaw for each file that other users may read or change. Changes nothing."""
        return iter(())


def _no_record(session_id: str, _: datetime, __: datetime) -> SessionRecord:
    raise DamagedFile(f"session {session_id} has no record")


class Examination(Struct, frozen=True):
    """Depth of an examination, and checks of content that a backend does not know."""

    new_record: Callable[[str, datetime, datetime], SessionRecord] = _no_record
    """Makes the record of an unknown session from its id and its times of creation and last use, to repair it."""
    subjects: Mapping[str, tuple[str, Callable[[bytes], object]]] = field(default_factory=dict)
    """Noun of the lines of each name, and a check that raises one of `MISFITS` for an invalid line."""
    verify: bool = False
    """True to compare checksums too."""


class SessionFile(Struct, frozen=True):
    """A file of a session: its size in bytes, and when it was last modified, in ISO 8601."""

    name: str
    size: int
    modified: str


class Sessions(ABC):
    """Catalog of an identity's sessions. Raises `MissingFolder`, or `DamagedFile` for an unparsable record."""

    @abstractmethod
    def begin(self, record: SessionRecord) -> SessionRef:
        """Make room for a session, to be filled through the result; invisible to others until `publish`."""

    @abstractmethod
    def publish(self, record: SessionRecord) -> None:
        """Make a session that was begun visible. Whole and durable on return."""

    @abstractmethod
    def abandon(self, session_id: str) -> None:
        """Drop a session that was begun in error."""

    @abstractmethod
    def ref(self, session_id: str) -> SessionRef:
        """Return the reference to the session that stores get."""

    def glance(self, session_id: str) -> SessionRecord | None:
        """Return the record if that takes less time than a hop into a thread; else None: call `get`."""
        return None

    def turn_reads(self, session_id: str, see: Callable[[SessionRecord], None]) -> Sequence[object]:
        """Return the read, for `Lease.take_with`, that passes the record to `see`; none if `glance` returns it."""
        return ()

    @abstractmethod
    def get(self, session_id: str) -> SessionRecord:
        """Return the record of a session."""

    @abstractmethod
    def find(
        self, wanted: Callable[[SessionRecord], bool], limit: int | None = None, *, after_id: str | None = None
    ) -> list[SessionRecord]:
        """Return the wanted sessions, most recently used first; only those after the session `after_id`, if given."""

    @abstractmethod
    def ids(self) -> list[str]:
        """Return the ids of all sessions, damaged ones too, in no order."""

    @abstractmethod
    def change(self, session_id: str, change: Callable[[SessionRecord], SessionRecord]) -> SessionRecord:
        """Apply `change` to the current record of a session and return the result. Durable on return.

        The session keeps its place in the order of last use, unless `change` makes its last use later.
        """

    @abstractmethod
    def note_used(self, session_id: str, now: datetime) -> None:
        """Record that a session was used; cheap, and may be lost: a failure is no error."""

    @abstractmethod
    def delete(self, session_id: str) -> None:
        """Erase a session with everything that is kept of it. Durable on return. Call `drop_former` after the last."""

    def reorder(self) -> None:
        """Bring imported sessions into the order of their last use."""
        return

    def drop_former(self) -> None:
        """Erase all former values of records, such as a title, and those of deleted ones. Durable on return."""
        return

    @property
    def is_tidy(self) -> bool:
        """True if `tidy` would do nothing, and closing takes less time than a hop into a thread."""
        return False

    def tidy(self) -> None:
        """Bring files that people read up to date; called after everything else is closed."""
        return

    def files(self, session: SessionRef) -> list[SessionFile]:
        """Return the files of a session, sorted by name; none if there are no files."""
        return []

    def stream_file(self, session: SessionRef, name: str) -> AsyncIterator[bytes]:
        """Stream the bytes of one of `files`. Raises `UnsafePath` or `FileNotFoundError`."""
        raise UnsupportedOperation(f"session {session.id} keeps no files: cannot open {name!r}")


class Backend(Place):
    """Place of an identity, with the catalog of its sessions and a place for each of them."""

    sessions: Sessions
    saves_trips: ClassVar[bool] = False
    """True if each write takes a round trip, so that `write_together` saves time."""

    def write_together(self, writes: Sequence[Callable[[], object]]) -> list[StoreError | None]:
        """Make these writes in one transaction; the failure of one stops no other. Return each failure, or None."""
        raise NotImplementedError

    @abstractmethod
    def place_of(self, session: SessionRef) -> Place:
        """Return the place of a session. It is deleted with the session; its operations raise `MissingFolder` then."""

    def private_file(self, name: str, *, creates: bool = True) -> Path | None:
        """Return a file that only this user reads, for data of this machine such as a terminal's history.

        Created if needed, unless `creates` is false; None if there is no folder for it.
        """
        return None

    def is_there(self) -> bool:
        """Return whether anything was ever kept here."""
        return True

    def check_there(self) -> None:
        """Raise `StoreAway` if the folder, once seen, has vanished: in a new one, what is said would be lost."""

    def refusal(self) -> OSError | None:
        """Try to write, and return the error; None if it succeeds. Leaves no trace."""
        return None

    def why_not_isolated(self) -> str:
        """Explain why the database does not itself isolate identities; empty if it does, or if there is none."""
        return ""

    def examine(self, options: Examination) -> Iterator[Flaw]:
        """Examine everything that is stored, and report what is wrong. Changes nothing."""
        return iter(())

    def sizes(self) -> Mapping[str, int]:
        """Return how many bytes are taken, by part; parts that cannot be measured are left out."""
        return {}

    def close(self) -> None:
        """Close connections. May be called twice."""
        return
