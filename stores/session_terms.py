"""The index of what each session speaks of, so that a search does not read every transcript. Blocking.

For each session the terms of its entries, with how many entries hold each; the stamp of the transcript says whether
that still holds. It is only a cache, on a shelf like that of memories: what is damaged, or holds terms of another
version, is left out, and it can be done without. NumPy is loaded with the first search.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from chatbot.stores.cache import Cache, FolderShelf
from chatbot.stores.errors import MissingFolder, StoreError
from chatbot.stores.home import Home

if TYPE_CHECKING:
    from chatbot.stores.observations.spoken import SpokenTerms

logger = logging.getLogger(__name__)

NAME = "spoken"

Counts = Mapping[str, int]
"""Number of entries of a session that contain each term."""
Row = tuple[str, str, Counts]
"""A session, the stamp of its transcript, and what its entries hold."""
Looked = Mapping[str, tuple[int, tuple[int, ...]]]
"""From each session to the version of its transcript, and how many entries held each of the terms asked for."""
T = TypeVar("T")


class SessionTerms:
    """Asked for the sessions that hold some terms, and told of those that have changed.

    Without a cache everything is kept in memory.
    """

    def __init__(self, cache: Cache | None) -> None:
        self._cache = cache
        self._rows: dict[str, Row] = {}
        self._spoken: SpokenTerms | None = None
        self._lock = threading.Lock()

    @classmethod
    def of(cls, home: Home | None, root: Path | None = None) -> SessionTerms:
        """Open the terms of the memory in `home`, cached below `root` or in the user's folder; in memory for None."""
        return cls(None if home is None else Cache(home, root))

    def look(self, terms: Sequence[str]) -> Looked:
        """Return for each known session the version that was read, and how many entries hold each of the terms."""
        if self._cache is None:
            return {
                session: (version_of(stamp), tuple(counts.get(term, 0) for term in terms))
                for session, stamp, counts in self._rows.values()
            }
        return self._try(lambda spoken: spoken.look(terms)) or {}

    def put(self, rows: Sequence[Row]) -> None:
        """Keep what sessions speak of by now."""
        if self._cache is None:
            self._rows |= {row[0]: row for row in rows}
        elif rows:
            self._try(lambda spoken: spoken.put([(each, version_of(stamp), counts) for each, stamp, counts in rows]))

    def forget(self, sessions: Collection[str]) -> None:
        """Erase what is known of sessions, so that no byte of it is left."""
        if self._cache is None:
            for session in sessions:
                self._rows.pop(session, None)
        elif sessions and self._is_there():
            self._try(lambda spoken: spoken.forget(lambda session: session in sessions))

    def forget_others(self, sessions: Collection[str]) -> None:
        """Erase what is known of all sessions but these: they were deleted by hand, or elsewhere."""
        if self._cache is None:
            self.forget([session for session in self._rows if session not in sessions])
        elif self._is_there():
            self._try(lambda spoken: spoken.forget(lambda session: session not in sessions))

    def _is_there(self) -> bool:
        """Return whether anything was ever kept."""
        return self._cache is not None and (self._cache.folder / NAME).exists()

    def _try(self, work: Callable[[SpokenTerms], T]) -> T | None:
        """The outcome of the work; None where there can be no cache."""
        try:
            with self._lock:
                return work(self._opened())
        except MissingFolder:
            return None  # nothing was kept yet, or another process removes it
        except (StoreError, OSError) as error:
            logger.warning("what sessions speak of could not be kept: %s", error)
            return None

    def _opened(self) -> SpokenTerms:
        from chatbot.stores.observations.spoken import SpokenTerms

        assert self._cache is not None  # noqa: S101 - who has none does not ask
        if self._spoken is None:
            self._spoken = SpokenTerms(FolderShelf.of(self._cache, NAME))
        return self._spoken


def version_of(stamp: str) -> int:
    """A number for the stamp of a transcript, never 0."""
    return int.from_bytes(blake2b(stamp.encode(), digest_size=8).digest(), "little") >> 1 or 1
