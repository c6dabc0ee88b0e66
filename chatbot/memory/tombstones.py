"""`tombstones.jsonl`: what was purged, as keyed digests, so that an import does not bring it back. Blocking.

A digest is of an id, a key or the words of something, made with the key in `tombstones.key`: it tells nothing without
that, and never holds a text. Only imports ask; saying the same thing again adds it again. To lift everything, delete
the file, or import with `--include-purged`.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable
from datetime import datetime
from hashlib import blake2b

from chatbot.memory.origins import Mark
from chatbot.stores import backend
from chatbot.stores.backend import Place
from chatbot.stores.records import format_time

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
        """Bar what has these marks from imports. Durable on return."""
        if new := list(dict.fromkeys(marks)):
            self._key = self._document.change(lambda key: key or secrets.token_bytes(_KEY_BYTES))
            digests = sorted(set(map(self._digest, new)))
            lines = (digests[begin : begin + _IN_A_LINE] for begin in range(0, len(digests), _IN_A_LINE))
            self._lines.append([{"v": 1, "at": format_time(at), "digests": each} for each in lines])

    def barred(self, marks: Collection[Mark]) -> bool:
        """Return whether something that has one of these marks was purged."""
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
            self._digests = set()  # they tell nothing without it
            self._read = None

    def _digest(self, mark: Mark) -> str:
        said = "\0".join(mark).encode(errors="surrogatepass")
        return blake2b(said, key=self._key, digest_size=16).hexdigest()
