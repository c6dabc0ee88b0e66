"""Origin of an imported row: its entries in the metadata, and the tombstones that outlive it.

`tombstones.jsonl` keeps what was purged, as keyed digests, so that an import does not bring it back. A digest is of an
id, an origin or words, and reveals nothing without the key in `tombstones.key`. Only imports check them. To ignore all,
delete the file, or import with `--include-purged`.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Iterator
from datetime import datetime
from hashlib import blake2b

from chatbot.stores import backend
from chatbot.stores.access import fold
from chatbot.stores.backend import Place
from chatbot.stores.observation import IMPORTED, Observation, Triple
from chatbot.stores.records import format_time, in_line

FROM, KEY, HASH = IMPORTED, "imported_key", "imported_hash"
"""Metadata keys of an imported row: the format, its key there, and a hash of what it says there and who may see it."""
Mark = tuple[str, ...]
"""Identity of something purged: a kind, and its values."""


def is_from(row: Observation, key: str) -> bool:
    """Return whether `key` names the origin of a row: its `source`, or an imported key, file or absolute folder."""
    key, imported = in_line(key), str(row.metadata.get(KEY, "")) if FROM in row.metadata else ""
    folder = key.rstrip("/")
    is_inside = folder.startswith("/") and imported.startswith(f"{folder}/")
    return bool(key) and (key in {row.source, imported} or is_inside)


def marks_of(row: Observation) -> Iterator[Mark]:
    """Yield the marks by which an import recognizes the row: its id, its words, and its origin."""
    yield "id", row.id
    yield "words", row.namespace, row.hash
    if FROM in row.metadata:
        kind, key, said = (str(row.metadata.get(name)) for name in (FROM, KEY, HASH))
        yield "words", row.namespace, said.partition(":")[0]
        if not key.startswith("/"):  # in a file something else may be said later
            yield "from", kind, row.namespace, key


def marks_of_fact(fact: Triple) -> Iterator[Mark]:
    """Yield the marks by which an import recognizes the fact."""
    yield "fact", fact.namespace, fold(fact.subject), fold(fact.predicate), fold(fact.object)


def marks_of_session(session_id: str, origin: str) -> Iterator[Mark]:
    """Yield the marks by which an import recognizes a session: its id, and its origin."""
    yield "session", session_id
    if origin:
        yield "origin", origin
        kind, _, key = origin.partition(":")
        if kind == "bundle":  # its key ends in a digest of the content
            yield "session", key.partition(":")[0]


def mark_of_deleted(session_id: str) -> Mark:
    """Return the mark by which a sync recognizes a session that was deleted here, with its memories or without."""
    return "deleted", session_id


_LINES = "tombstones"
_KEY = "tombstones.key"
_KEY_BYTES = 32
_IN_A_LINE = 1_000


class Tombstones:
    """The digests of an identity."""

    def __init__(self, place: Place) -> None:
        self._lines = place.lines(_LINES)
        self._document = place.document(_KEY)
        self._key = b""
        self._digests: set[str] = set()
        self._read: backend.Mark | None = None

    def add(self, marks: Iterable[Mark], at: datetime) -> None:
        """Keep rows with these marks out of imports. Durable on return."""
        if new := list(dict.fromkeys(marks)):
            self._key = self._document.change(lambda key: key or secrets.token_bytes(_KEY_BYTES))
            digests = sorted(set(map(self._digest, new)))
            lines = (digests[begin : begin + _IN_A_LINE] for begin in range(0, len(digests), _IN_A_LINE))
            self._lines.append([{"v": 1, "at": format_time(at), "digests": each} for each in lines])

    def barred(self, marks: Collection[Mark]) -> bool:
        """Return whether one of these marks was purged."""
        self._refresh()
        return bool(self._digests) and not self._digests.isdisjoint(map(self._digest, marks))

    def any(self) -> bool:
        """Return whether anything was purged that an import could bring back."""
        self._refresh()
        return bool(self._digests)

    def _refresh(self) -> None:
        while True:
            reading = self._lines.since(self._read)
            if reading.starts_over:
                self._digests = set()
            self._read = reading.mark
            self._digests |= {str(each) for line in reading.records for each in line.get("digests", ())}
            if not reading.records:
                break
        self._key = self._document.read() or b""
        if not self._key:
            self._digests = set()  # they are useless without it
            self._read = None

    def _digest(self, mark: Mark) -> str:
        said = "\0".join(mark).encode(errors="surrogatepass")
        return blake2b(said, key=self._key, digest_size=16).hexdigest()
