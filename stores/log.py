"""Contract of an engine for observations: an ordered log of events, one line each, and the right to change it.

Everything else is built on it, once for all engines: the fold of events into a table, the gate, ranking, caches,
erasure. A `Place` is the position of a line; places grow in the order of the lines. Erasure and compaction rewrite the
log: `is_replaced` reports it to everyone who read the old one, and all places are new.

All methods block. Readers need no lock; `locked` is exclusive between threads and processes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from chatbot.stores.row_events import Event

Place = tuple[int, int]
"""Place of a line in the log: offset and length in bytes, or the numbers of another engine."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Position in a particular log: a cache keeps it to continue from there."""

    inode: int
    """Identity of the log, which differs for one that replaced it."""
    size: int
    digest: str
    """Digest of the part before the position."""


Change = Callable[[bytes, int], bytes | None]
"""Function from a line, without its end, and the first number of its place, to what is left of it."""


class Writing(Protocol):
    """The right to change the log, held exclusively."""

    def mend(self) -> None:
        """Complete or cut off a torn line that a killed process left at the end."""

    def append(self, event: Event) -> Place:
        """Add the event's line and return its place. Everyone may read it now; it is durable after `sync`."""

    def release(self) -> None:
        """Release the lock, so that others may write; only `sync` may follow."""

    def sync(self) -> None:
        """Return once all lines are durable."""

    def rewrite(self, change: Change, more: Iterable[Event] = ()) -> dict[int, Place]:
        """Replace the log by the lines that `change` makes of it, followed by the lines of `more`; durable on return.

        All lines must have been read. No byte of what is left out is kept. Returns the new place of each line that is
        left, by the first number of its old place. What it wrote counts as read.
        """


class WrittenByOthers(Exception):
    """Somebody else wrote to the log, or may have: nothing was written."""


class Log(ABC):
    """The events of an identity, and how far they were read."""

    name: str
    """Name in messages."""

    @property
    @abstractmethod
    def position(self) -> int:
        """Number of bytes that were read, or written by this process."""

    @abstractmethod
    def mark(self) -> Mark:
        """Return how far it was read."""

    @abstractmethod
    def resume(self, mark: Mark) -> bool:
        """Continue at the mark if it is of this log; return whether it is."""

    @abstractmethod
    def is_replaced(self) -> bool:
        """Return whether the log is another one than was read, or lost some of its lines."""

    @abstractmethod
    def start_again(self) -> None:
        """Forget what was read: the next `read_new` begins at the start of the log that is there then."""

    @abstractmethod
    def read_new(self) -> Iterator[tuple[Place, bytes]]:
        """Yield the whole lines after what was read, with their places; each counts as read at the next request."""

    @abstractmethod
    def event_at(self, place: Place) -> Event:
        """Return the event in the line at `place`. Raises a `StoreError` if the line is damaged."""

    def fetch(self, places: Iterable[Place]) -> None:  # noqa: B027 - for those whose lines are far away
        """Prepare to be asked for the events at these places."""

    @abstractmethod
    def locked(self) -> AbstractContextManager[Writing]:
        """Lock the log for writing."""

    def hoping(self) -> AbstractContextManager[Writing]:
        """Write without waiting for a lock, if that takes time, assuming that nobody else writes meanwhile.

        Raises `WrittenByOthers` in `release` if somebody did, and also for a refusal that may rest on outdated rows:
        then nothing was written, and the caller starts again with `locked`. Rewrites nothing.
        """
        return self.locked()

    def was_written(self) -> bool:
        """Return whether anything was ever written here; a copy that is only read is left unchanged."""
        return True

    @abstractmethod
    def rest(self) -> None:
        """Close descriptors until the next use."""

    @abstractmethod
    def close(self) -> None:
        """Close files and connections."""
