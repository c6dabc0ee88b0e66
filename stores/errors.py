"""Errors of stores: `StoreError` and its kinds.

A store raises nothing else on purpose. Every class is also the builtin that a Python programmer would catch.
"""

import errno
from collections.abc import Iterable
from typing import ClassVar, Self


class StoreError(Exception):
    """Root of everything that a store raises."""

    in_public: ClassVar[str] = ""
    """Advice for callers who may not know where the storage is; empty if only the log can help."""


MISFITS = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""Errors raised for a value of an unexpected shape, as in a file that another program wrote."""
NO_FILE_LEFT = frozenset({errno.EMFILE, errno.ENFILE})
"""Errors of a process, or a system, that has as many files open as it may."""
FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
"""Errors of a full disk."""


class UnsupportedOperation(StoreError, NotImplementedError):
    """No store of this session can do that; the message names the stores it has."""


class UnknownStore(StoreError, LookupError):
    """No store plug-in of that name is installed."""


class BrokenStore(StoreError, ImportError):
    """A store plug-in was found but cannot be used, or raised an error of its own."""


class InvalidSettings(StoreError, ValueError):
    """A store was configured with an unknown or impossible setting."""


class InvalidValue(StoreError, ValueError):
    """An argument that is invalid, or a text that no store may keep."""


class UnsafePath(StoreError, PermissionError):
    """A name or link that leads out of its folder."""


class MissingFolder(StoreError, FileNotFoundError):
    """The folder to write in does not exist, or was deleted meanwhile."""

    @classmethod
    def of(cls, session_id: str) -> Self:
        """Return the error for a session that does not exist."""
        return cls(f"no session has the id {session_id}: it was deleted, or never existed")


class DamagedFile(StoreError, ValueError):
    """A file that cannot be parsed; the message has the name under which it was set aside, if it was."""


class LaterFormat(StoreError, ValueError):
    """A file was written by a later release; it is left unchanged."""


_NAMED = 3
"""Maximum ids named in an error."""


class UnknownObservation(StoreError, LookupError):
    """No such observation or fact, or one that is hidden from the caller."""

    @classmethod
    def of(cls, ids: Iterable[str], noun: str = "memory") -> Self:
        """Return the error that names the first of these ids of a `noun`."""
        named = list(ids)
        others = f" or {len(named) - _NAMED:,} others" if len(named) > _NAMED else ""
        return cls(f"no {noun} has the id {', '.join(ascii(str(each))[1:-1][:80] for each in named[:_NAMED])}{others}")


class UnknownProject(StoreError, LookupError):
    """Nothing that the caller may see belongs to the project."""


class ConflictingChange(StoreError, ValueError):
    """A change that contradicts stored data: a duplicate id, a cycle of supersession, a row that is not active."""


class ChangedMeanwhile(ConflictingChange):
    """The row has changed since the caller read it; nothing was written."""


class OtherEmbedder(StoreError, ValueError):
    """The stored vectors were made by another model; they are not compared, and only deleted on request."""


class AccessDenied(StoreError, PermissionError):
    """The caller may not do this: their clearance, namespace, project or rights forbid it."""


class MissingRight(AccessDenied):
    """The caller lacks a right that the operation needs; see `chatbot.stores.access.may`."""


class StoreBusy(StoreError, TimeoutError):
    """Another process held the lock for longer than the time limit, or no more files can be opened just now."""

    in_public = "the storage is busy: try again in a moment"


class StoreFailed(StoreError, OSError):
    """The operating system refused to read or write: disk full, read-only folder, too many files."""


class ReadOnlyFolder(StoreFailed):
    """The folder or database is read-only: a backup, a disk that is mounted so, a standby. Reads work."""

    in_public = "the storage is read-only just now: reading works, and nothing was written"


class FullDisk(StoreFailed):
    """The disk, or the quota on it, is full. Reading works; to delete permanently needs room, too."""

    in_public = "the disk of the server is full: reading works, and writing will once there is room"


class StoreAway(StoreFailed, ConnectionError):
    """The database cannot be reached, or the folder of the memory has vanished. Nothing was changed."""

    in_public = "the storage does not answer just now: try again in a few seconds"

    @classmethod
    def gone(cls, what: object) -> Self:
        """Return the error for a folder that has vanished."""
        return cls(f"{what} is gone: it was moved or deleted, or its disk is away: put it back, or restart without it")


class UnknownOutcome(StoreAway):
    """The connection or the disk failed during a write, which may have succeeded."""

    _IN_DOUBT = "while something was written, and it is not known whether it was kept: check before you repeat it"
    in_public = f"the storage failed {_IN_DOUBT}"

    @classmethod
    def of(cls, what: str, why: str) -> Self:
        """Return the error for what failed."""
        return cls(f"{what} {cls._IN_DOUBT} ({why})")


class ClosedResource(StoreError, RuntimeError):
    """An operation on a memory, session or store after its `aclose`."""


def kind_of(error: OSError) -> type[StoreFailed | StoreBusy]:
    """Return the class of the store error for an error of the operating system."""
    return FullDisk if error.errno in FULL else StoreBusy if error.errno in NO_FILE_LEFT else StoreFailed


def unknown_choice(name: str, value: object, known: Iterable[str]) -> InvalidValue:
    """Return the error for an argument that is none of the known values."""
    return InvalidValue(f"{name} is {value!r:.80}{did_you_mean(str(value), filter(None, known))}")


def too_long(name: str, length: int, most: int, where: str = "") -> InvalidValue:
    """Return the error for a text that is longer than `most` characters; `where` ends its sentence."""
    return InvalidValue(f"{name} is {length:,} characters long: at most {most:,} can be kept{where}")


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return the end of an error about an unknown word: the nearest known one, or all."""
    known = sorted(known)
    return nearest_hint(word, known) or (f": choose from {', '.join(known)}" if known else ": none exist")


def nearest_hint(word: str, known: Iterable[str]) -> str:
    """Return the end of an error about an unknown word: the nearest known one; empty if none is near."""
    near = nearest(word, known)
    return f": did you mean {near[0]!r}?" if near else ""


def nearest(word: str, known: Iterable[str]) -> list[str]:
    """Return the known words that begin with the word, else the most similar one, if any is similar enough."""
    import difflib

    known = sorted(known)
    begun = [each for each in known if word and each.startswith(word)]
    return begun or difflib.get_close_matches(word, known, n=1, cutoff=0.6)
