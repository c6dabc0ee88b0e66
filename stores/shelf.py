"""Shelf of an engine for what is derived from its log: immutable pieces, and the list of those that count.

Text index, vectors and the index of sessions are pieces on a shelf each: arrays with checksums, written whole and never
changed. The list names the pieces that count; publishing another list changes what all readers use. A piece that
no list names is left by a killed process, or about to be published by the holder of `making`.

All methods block and are safe between threads and processes. Everything may be deleted at any time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable
from contextlib import AbstractContextManager, ExitStack
from typing import Any, ClassVar, Protocol


class Piece(Protocol):
    """A piece that is open for reading."""

    size: int
    """In bytes."""

    def read(self, begin: int, end: int) -> bytes:
        """Return the bytes from `begin` to `end`; fewer where it is shorter. Raises `OSError`."""


class Hands(Protocol):
    """The right to change what is on the shelf, held exclusively."""

    def put(self, name: str, data: bytes, *, durable: bool = False) -> None:
        """Add a piece, whole or not at all; it can be opened at once.

        Without `durable` a power cut may lose or damage it.
        """

    def publish(self, value: Any, *, durable: bool = True) -> Hashable:
        """Replace the list by a JSON value, atomically, and return the new `stamp`.

        Without `durable` a power cut may bring the former list back, or lose both.
        """

    def remove(self, names: Collection[str]) -> None:
        """Erase pieces; a missing one is no error."""

    def sync(self) -> None:
        """Return once all removed pieces are gone permanently."""


class Shelf(ABC):
    """A place for immutable pieces. Names are of lower-case letters, digits and "-"."""

    name: str
    """Name in messages."""

    is_remote: ClassVar[bool] = False
    """True if opening a piece takes a round trip: such a piece is read whole when it is first opened."""

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
    def opened(self, name: str) -> AbstractContextManager[Piece]:
        """Open a piece. Raises `OSError` if it is missing or not ours."""

    @abstractmethod
    def alone(self) -> AbstractContextManager[Hands]:
        """Lock the shelf while names are changed. Raises `StoreBusy`."""

    @abstractmethod
    def making(self, *, wait: bool) -> ExitStack | None:
        """Take the right to make pieces for a later list, held until the stack is closed.

        None if another has it and this one may not wait: only one may wait at a time.
        """

    @abstractmethod
    def clear(self) -> None:
        """Erase the shelf with everything on it."""
