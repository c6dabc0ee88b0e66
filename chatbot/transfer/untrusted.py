"""Data from other machines and programs: files of a place, receipts, calls and zip archives, checked before use."""

import gzip
import zlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from io import BytesIO
from typing import Any, BinaryIO, Required, TypedDict, cast
from zipfile import BadZipFile, ZipFile, ZipInfo

import msgspec
from msgspec.structs import replace

from chatbot.memory.handle import shared_value
from chatbot.messages import Amount, Usage
from chatbot.stores.backend import checked_blob, checked_blob_name
from chatbot.stores.errors import DamagedFile, InvalidValue, LaterFormat
from chatbot.stores.observations.log_union import Counts, OtherRows, digest_of, identity, parse_parts
from chatbot.stores.records import KeyValue, canonical, check_time, format_time, parse_record, parse_time
from chatbot.transfer.union import SESSIONS, Entries, portable

VERSION = 1
_LAST = datetime(3000, 1, 1, tzinfo=UTC)
"""Times from elsewhere are before it, however wrong the clock was there: later changes must remain possible."""
_LARGEST_UNPACKED = 256 << 20
_LARGEST_DIRECTORY = 16 << 20
"""Maximum bytes of an archive's directory, which lists some 300,000 members."""


class _Call(Usage, frozen=True):
    """A call. On a bill it has all of these fields."""

    at: str = ""
    session: str = ""
    purpose: str = ""
    model: str = ""
    seconds: Amount = 0


class _Considered(TypedDict):
    id: str
    score: float
    parts: dict[str, float]
    verdict: str


class _LeftOut(TypedDict):
    id: str
    why: str


class _Withheld(TypedDict, total=False):
    provider: Required[str]
    rows: list[str]


class _Memory(TypedDict, total=False):
    query: list[str]
    looked_back: int
    judged: dict[str, Any]
    considered: list[_Considered]
    left_out: list[_LeftOut]
    withheld: _Withheld
    profile: list[str]
    injected: list[str]
    excerpts: list[str]
    standing: dict[str, str] | list[str]
    quoted: list[str]
    listed: list[str]
    before: list[str]
    in_window: list[str]


class _File(TypedDict, total=False):
    name: Required[str]
    media_type: Required[str]
    bytes: Required[int]
    characters: int
    redacted: list[str]


class _Cut(TypedDict):
    what: str
    tokens: int
    kept: int


class _Window(TypedDict, total=False):
    entries: int
    cut: list[_Cut]


class _Receipt(TypedDict, total=False):
    """The fields of a receipt that are shown and billed."""

    at: Required[str]
    resumed_at: str
    turn: str
    model: str
    finish: str
    seconds: float
    calls: list[_Call]
    tools: list[dict[str, Any]]
    tokens: dict[str, int]
    attachments: list[_File]
    window: _Window
    memory: _Memory
    remembered: str | None
    title: str
    notices: list[str]


def checked_time(at: datetime | str) -> datetime:
    """Return a time. Raises `InvalidValue` for one that is not before the year 3000."""
    moment = parse_time(at) if isinstance(at, str) else check_time(at)
    if moment >= _LAST:
        raise InvalidValue(f"something is dated {format_time(moment)}, which is in the future")
    return moment


def check_call(call: Mapping[str, Any]) -> None:
    """Raise `ValueError` for a call that cannot be billed."""
    msgspec.convert(call, _Call)
    if missing := {*_Call.__struct_fields__} - call.keys():
        raise InvalidValue(f"a call lacks {missing.pop()}")
    checked_time(call["at"])


def checked_receipt(receipt: Mapping[str, Any]) -> dict[str, Any]:
    """Return a receipt that can be shown and billed. Raises `ValueError`."""
    try:
        msgspec.convert(receipt, _Receipt)
    except msgspec.ValidationError as error:
        raise DamagedFile(f"a receipt was edited or damaged: {error}") from error
    if receipt.keys().isdisjoint({"turn", "kind"}):
        raise InvalidValue("a receipt lacks its turn")
    for name in {"at", "resumed_at"} & receipt.keys():
        checked_time(receipt[name])
    return dict(receipt)


class _Line(msgspec.Struct, tag_field="k"):
    """A line of a file of a place."""


class RowLine(_Line, tag="row"):
    """Events of a row or fact, and how often it was used."""

    id: str
    parts: list[dict[str, Any]]
    counts: Counts | None = None


class ErasedLine(_Line, tag="erased"):
    """Rows that were erased, `alone` or with those derived from them; if `alone` is None, sessions and facts."""

    ids: list[str]
    alone: bool | None = None


class RecordsLine(_Line, tag="lines"):
    """Calls of the bill; in a backup also lines that belong to the machine."""

    name: str
    v: list[dict[str, Any]]


class DocumentLine(_Line, tag="document"):
    """A small file, only in a backup."""

    name: str
    data: bytes


class SessionLine(_Line, tag="session"):
    """A session with its new entries, receipts and files. A value of None was deleted.

    In a backup it also has what belongs to the machine: its last use, all its stores, and its choices.
    """

    session: dict[str, Any]
    digest: str
    times: dict[str, str]
    """When fields of it were set last."""
    ids: list[str]
    cut: list[str]
    entries: Entries
    values: dict[str, tuple[str | None, str]]
    receipts: list[dict[str, Any]]
    files: dict[str, bytes] = {}

    @property
    def id(self) -> str:
        """The id of the session."""
        return str(self.session["id"])

    def checked(self, *, is_own: bool) -> "SessionLine":
        """Return it without the parts that belong to one machine, unless it is our own backup. Raises `ValueError`."""
        record = parse_record(self.session)
        if self.ids and SESSIONS not in record.store_types:
            raise InvalidValue("a session has entries and no store for them")
        if len({*self.ids}) < len(self.ids):
            raise InvalidValue("an entry is named twice")
        for name, data in self.files.items():
            checked_blob(checked_blob_name(name), data)
        for receipt in self.receipts:
            checked_receipt(receipt)
        for each in (record.created_at, *(entry.at for entry in self.entries.values())):
            checked_time(each)
        values = {}
        for key, (value, at) in self.values.items():
            checked = KeyValue(key, value or "", checked_time(at))  # raises for an invalid key or text
            time = format_time(checked.at)
            values[key] = (value if is_own or value is None else shared_value(key, value, time), time)
        set_at = {name: format_time(checked_time(at)) for name, at in self.times.items()}
        session = record.as_json() if is_own else portable(record)
        return replace(self, session=session, times=set_at, values=values)


Line = RowLine | ErasedLine | RecordsLine | DocumentLine | SessionLine


class FileHead(msgspec.Struct):
    """First line of a file: the identity and machine that it is from."""

    identity: str
    machine: str
    version: int = VERSION


def pack(head: FileHead, lines: Sequence[str]) -> bytes:
    """Return the content of a file. A lone surrogate becomes a question mark."""
    text = "\n".join([msgspec.json.encode(head).decode(), *lines])
    return gzip.compress(text.encode(errors="replace"), 6, mtime=0)


def unpack(name: str, data: bytes, identity: str) -> Iterator[Line]:
    """Yield a file's lines, one by one. Raises `DamagedFile`, `LaterFormat`, `ValueError` or `zlib.error`."""
    if not name.isprintable() or sha256(data).hexdigest()[:32] != name.rpartition("-")[2].partition(".")[0]:
        raise DamagedFile("its digest differs from its name: it is not complete yet, or damaged")
    unpacking = zlib.decompressobj(wbits=31)
    lines = BytesIO(unpacking.decompress(data, _LARGEST_UNPACKED))
    if unpacking.unconsumed_tail or not unpacking.eof:
        raise DamagedFile("it unpacks to more than allowed, or is cut off")
    head = msgspec.json.decode(lines.readline(), type=FileHead)
    if (head.identity, head.machine) != (identity, name.partition("/")[0]):
        raise DamagedFile("it belongs to another identity or machine")
    if head.version > VERSION:
        raise LaterFormat("it was written by a later release: upgrade chatbot")
    yield from (msgspec.json.decode(line, type=Line) for line in lines)  # refuses NaN and lone surrogates


BILL = "usage"
OWN_LINES = ("tombstones", "hook_failures")
OWN_DOCUMENTS = ("tombstones.key", "maintenance.json")
"""Parts of a backup that a sync leaves out."""


class Delivery(msgspec.Struct):
    """Contents of the files of a place, parsed; of sessions only the ids."""

    names: list[str] = []
    """The files; only one while lines are taken from it."""
    rows: OtherRows = msgspec.field(default_factory=OtherRows)
    erased: set[str] = set()
    """Erased sessions and facts."""
    sessions: dict[str, list[str]] = {}
    """Ids of the sessions in each file."""
    lines: dict[str, list[dict[str, Any]]] = {}
    documents: dict[str, bytes] = {}
    digests: set[bytes] = set()

    def join(self, other: "Delivery") -> None:
        """Add the contents of another one."""
        self.names += other.names
        self.rows.join(other.rows)
        self.erased |= other.erased
        self.sessions |= other.sessions
        for name, records in other.lines.items():
            self.lines.setdefault(name, []).extend(records)
        self.documents |= other.documents
        self.digests |= other.digests

    def take(self, line: Line, *, is_own: bool) -> None:
        """Add a line. Raises `ValueError` or `LookupError` for one that is invalid."""
        match line:
            case RowLine(row_id, records, counts):
                parts = parse_parts(row_id, records)
                for at in (*(part.at for part in parts), *(counts.times if counts else ())):
                    checked_time(at)
                self.rows.add(row_id, parts, counts)
                self.digests |= {digest_of(identity(part)) for part in parts}
            case ErasedLine(ids, alone):
                if alone is None:
                    self.erased.update(ids)
                else:
                    self.rows.erase(dict.fromkeys(ids, alone))
                self.digests |= {digest_of(f"erased {each}") for each in ids}
            case RecordsLine(name, records) if name == BILL or (is_own and name in OWN_LINES):
                self.lines.setdefault(name, []).extend(records)
                self.digests |= {digest_of(canonical(each)) for each in records}
                for each in records if name == BILL else ():
                    check_call(each)
            case SessionLine():
                self.sessions.setdefault(self.names[0], []).append(line.checked(is_own=is_own).id)
            case DocumentLine(name) if is_own and name in OWN_DOCUMENTS:
                self.documents[name] = line.data
            case _:
                raise DamagedFile(f"unknown line {line!r:.40}")


class _Bounded:
    """A file of which no read returns more than the largest directory."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def read(self, size: int = -1) -> bytes:
        if size > _LARGEST_DIRECTORY:
            raise OSError(f"its directory claims {size:,} bytes, more than {_LARGEST_DIRECTORY:,}")
        return self._file.read(_LARGEST_DIRECTORY if size < 0 else size)


def open_zip(file: BinaryIO, name: str) -> ZipFile:
    """Open an archive to read it. Raises `DamagedFile`, also for a directory that would not fit into memory."""
    try:
        archive = ZipFile(cast("BinaryIO", _Bounded(file)))
    except (BadZipFile, OSError, ArithmeticError, ValueError, NotImplementedError) as error:
        raise DamagedFile(f"{name} is not a readable zip file: {error}") from error
    archive.fp = file
    return archive


def content_of(archive: ZipFile, member: ZipInfo) -> bytes:
    """Return the content of a member; reads no more than its claimed size. Raises `DamagedFile`."""
    try:
        with archive.open(member) as file:
            return file.read(member.file_size + 1)
    except (BadZipFile, zlib.error, EOFError, OSError, ArithmeticError, ValueError, RuntimeError) as error:
        raise DamagedFile(f"{member.filename!r} cannot be read: {error}") from error
