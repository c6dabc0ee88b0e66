"""Contracts of an engine for observations: an ordered log of events, one line each, and a shelf for derived data.

Everything else is built on these, once for all engines: the fold of events into a table, the gate, ranking, caches,
erasure. Erasure and compaction rewrite the log, with the pure functions `rewrite_lines`, `erasing_change` and
`without_counts`: places of lines may then be new, and `is_replaced` reports it to everyone who read the old ones.

Text index, vectors and the table each have a `Shelf` with pieces: arrays with checksums, written whole and never
changed. Its list names the valid pieces; publishing another list changes what all readers use. A piece that is not
listed was left by a killed process. A shelf may be deleted at any time.

All methods block and are safe between threads and processes. Readers need no lock; `locked` is exclusive.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, ClassVar, Protocol

from msgspec import Struct
from msgspec.structs import replace

from chatbot.stores.errors import InvalidValue
from chatbot.stores.json_lines import encode, record_of
from chatbot.stores.records import ID, parse_time
from chatbot.stores.row_events import Event, parse_event

LinePlace = tuple[int, int]
"""Place of a line in the log: offset and length in bytes, or the numbers of another engine."""


class LogMark(Struct, frozen=True):
    """Position in a particular log: a cache keeps it to continue from there."""

    inode: int
    """Identity of the log, which differs for one that replaced it."""
    size: int
    digest: str
    """Digest of the part before the position."""


LineChange = Callable[[bytes, int], bytes | None]
"""Function from a line (without its end) and the first number of its place to its replacement; None removes it."""


class Writing(Protocol):
    """Exclusive access to change the log. If a killed process left a torn line at its end, that line was ended."""

    def append(self, event: Event) -> LinePlace:
        """Add the event's line and return its place. Everyone may read it now; it is durable after `sync`."""

    def release(self) -> None:
        """Release the lock, so that others may write; only `sync` may follow."""

    def sync(self) -> None:
        """Return once all lines are durable."""

    def rewrite(self, change: LineChange, more: Iterable[Event] = ()) -> dict[int, LinePlace]:
        """Apply `change` to all lines, and add the lines of `more`; durable on return.

        All lines must have been read. No byte of removed lines is kept. Returns the new place of each remaining line by
        the first number of its old place. The new lines count as read.
        """


class WrittenByOthers(Exception):
    """Another writer wrote to the log, or may have: nothing was written."""


class Log(ABC):
    """The events of an identity, and how far they were read."""

    name: str
    """Name in messages."""

    @property
    @abstractmethod
    def position(self) -> int:
        """Number of bytes that were read, or written by this process."""

    @abstractmethod
    def mark(self) -> LogMark:
        """Return how far it was read."""

    @abstractmethod
    def resume(self, mark: LogMark) -> bool:
        """Continue at the mark and return True, or return False for a mark of another log."""

    @abstractmethod
    def is_replaced(self) -> bool:
        """Return whether the log was replaced, or lost lines, since it was read."""

    def is_known(self, fresh_at: float) -> bool:  # noqa: ARG002 - for engines whose reads take a round trip
        """Return True if everything written until that monotonic time is known to be read."""
        return False

    @abstractmethod
    def start_again(self) -> None:
        """Forget what was read: the next `read_new` begins at the start of the current log."""

    @abstractmethod
    def read_new(self) -> Iterator[tuple[LinePlace, bytes]]:
        """Yield the complete new lines with their places; each counts as read when the next one is requested."""

    @abstractmethod
    def event_at(self, place: LinePlace) -> Event:
        """Return the event in the line at `place`. Raises a `StoreError` if the line is damaged."""

    def fetch(self, places: Iterable[LinePlace]) -> None:  # noqa: B027 - for remote logs
        """Prefetch the events at these places."""

    @abstractmethod
    def locked(self) -> AbstractContextManager[Writing]:
        """Lock the log for writing."""

    def optimistic(self) -> AbstractContextManager[Writing]:
        """Write without a lock if locking is slow, assuming that no other writer writes meanwhile; not for `rewrite`.

        `release` raises `WrittenByOthers` if one did, or if an event was refused because of rows that may be outdated.
        Nothing was written then: the caller starts again with `locked`.
        """
        return self.locked()

    def was_written(self) -> bool:
        """Return whether anything was ever written here; a copy that is only read is left unchanged."""
        return True

    @abstractmethod
    def close(self) -> None:
        """Close files and connections. May be called twice."""


class ShelfWriter(Protocol):
    """Exclusive access to change the shelf."""

    def put(self, name: str, data: bytes, *, durable: bool = False) -> None:
        """Add a piece, whole, to be opened at once; without `durable` a power cut may lose or damage it."""

    def publish(self, value: Any, *, durable: bool = True) -> Hashable:
        """Replace the list atomically, return its `stamp`; without `durable` a power cut may undo that, or lose it."""

    def remove(self, names: Collection[str]) -> None:
        """Erase pieces; a missing one is no error."""

    def sync(self) -> None:
        """Return once all removed pieces are gone permanently."""


class Shelf(ABC):
    """A place for immutable pieces. Names are of lower-case letters, digits and "-"."""

    name: str
    """Name in messages."""

    is_shared: ClassVar[bool] = False
    """True if other machines use it too."""

    @abstractmethod
    def prepare(self) -> None:
        """Create the shelf. Raises a `StoreError` if nothing can be stored."""

    @abstractmethod
    def stamp(self) -> Hashable | None:
        """Return a value that changes whenever another list is published, in one cheap call; None without a list."""

    @abstractmethod
    def listed(self) -> Any:
        """Return the list, a JSON value; None if there is none of ours."""

    @abstractmethod
    def names(self) -> Collection[str]:
        """Return the names of all pieces, listed or not."""

    @abstractmethod
    def read(self, name: str) -> bytes:
        """Return a piece. Raises `OSError` if it is missing or not ours."""

    @abstractmethod
    def alone(self) -> AbstractContextManager[ShelfWriter]:
        """Lock the shelf while it is changed. Raises `StoreBusy`."""

    @abstractmethod
    def clear(self) -> None:
        """Erase the shelf with everything on it."""


ID_IN_LINE = re.compile(ID.pattern.encode())
COUNTING = frozenset({"use", "counts", "consolidate"})
"""Kinds of events that count the uses of rows, or set their strength, and change no text."""
_KIND = re.compile(rb'\{"v":1,"event":"([a-z]+)"')
_REPLACING = re.compile(rb'"(?:supersedes|forgets|compresses)"\s*:')
_ADDING = re.compile(rb'\{"v":1,"event":"add","at":"[^"]*","row":\{"id":"([^"]*)"')


def rewrite_lines(data: bytes, change: LineChange) -> tuple[bytes, dict[int, LinePlace]]:
    """Apply `change` to each line of `data`; return the new lines, and the new place of each by its old start."""
    lines: list[bytes] = []
    moved: dict[int, LinePlace] = {}
    begin = size = 0
    for old in data.split(b"\n")[:-1]:
        if (new := change(old, begin)) is not None:
            moved[begin] = (size, len(new))
            lines.append(new + b"\n")
            size += len(lines[-1])
        begin += len(old) + 1
    return b"".join(lines), moved


def erasing_change(
    gone: Mapping[int, str],
    at: datetime,
    *,
    who: str = "",
    why: str = "",
    facts: Collection[str] = (),
    before: Collection[str] = (),
) -> LineChange:
    """Return a change that removes `facts`, and replaces the lines of the rows in `gone` by their ids.

    `gone` has the id of each row by the start of that line. An unreadable line is removed if it names one of them.
    Rows that they replaced stay replaced; rows that were erased `before` are no longer named.
    """
    erased = {*gone.values(), *facts}
    past = erased.union(before)
    marks = {each.encode() for each in erased}
    purge = Event(kind="purge", at=at, who=who, why=why)

    def change(line: bytes, begin: int) -> bytes | None:
        if begin in gone:
            record = record_of(line) if _REPLACING.search(line) else {}
            along = _replaced_rows(record, past)
            since = parse_time(record["at"]) if along else at  # the time at which it replaced them
            return encode(replace(purge, at=since, ids=(gone[begin],), **along).as_json()).rstrip(b"\n")
        other = _ADDING.match(line)
        if marks.isdisjoint(other.groups() if other else ID_IN_LINE.findall(line)):
            return line
        try:
            return _without(parse_event(record_of(line)), erased, line)
        except InvalidValue:
            return None

    return change


def without_counts(change: LineChange) -> LineChange:
    """Extend a change to drop lines that only count: uses and strength are rewritten in few lines."""
    return lambda line, begin: None if _is_count(line) else change(line, begin)


def _is_count(line: bytes) -> bool:
    if plain := _KIND.match(line):
        return plain[1].decode() in COUNTING
    try:
        return record_of(line).get("event") in COUNTING
    except InvalidValue:
        return False


def _replaced_rows(record: Mapping[str, Any], gone: Collection[str]) -> dict[str, Any]:
    """Return the existing rows that the row of a line replaced, by field of the line."""
    along = {name: each for name in ("supersedes", "forgets") if (each := record.get(name)) and each not in gone}
    if compresses := tuple(each for each in record.get("compresses", ()) if each not in gone):
        along["compresses"] = compresses
    return along


def _without(event: Event, gone: Collection[str], line: bytes) -> bytes | None:
    """Return the line of an event without these rows and facts; None if nothing is left of it."""
    if event.row is not None:
        return None if event.row.id in gone else line  # an erased row's id in use again, or a line that refers to one
    if event.triple is not None:
        return None if event.triple.source in gone or event.triple.id in gone else line
    if event.kind == "purge":
        compresses = tuple(each for each in event.compresses if each not in gone)
        return encode(replace(event, compresses=compresses).as_json()).rstrip(b"\n")
    left = tuple(each for each in event.ids if each not in gone)
    if len(left) == len(event.ids):
        return line
    return encode(replace(event, ids=left).as_json()).rstrip(b"\n") if left else None
