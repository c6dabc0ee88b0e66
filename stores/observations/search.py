"""Search of rows by words: in the index of the cache, or in memory if it cannot be written.

A row is in memory before it is in the index, so a search sees all earlier writes. The index catches up in the
background, a batch at a time, while searches go on. NumPy is loaded with the first search.
"""

import logging
import threading
import time
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import compress, islice
from typing import TYPE_CHECKING

from chatbot.stores.errors import StoreError
from chatbot.stores.log import Shelf
from chatbot.stores.observation import SEARCHED, Observation, searched_of
from chatbot.stores.observations.arrays import FLUSH_ROWS
from chatbot.stores.query import Progress
from chatbot.stores.records import chunks
from chatbot.stores.text.analysis import terms
from chatbot.stores.text.bm25 import Document
from chatbot.stores.text.dates import date_terms, day_terms, local

if TYPE_CHECKING:
    from chatbot.stores.observations.index import Plan, TextIndex

logger = logging.getLogger(__name__)

NAME = "index"
LEAST_ROWS = 32
"""Fewest rows to write on closing, so that segments stay few; the next process indexes fewer ones again."""
_AT_ONCE = 128
"""Rows read at a time, under the lock while the index is rebuilt."""
_FEW = 32
"""Rows analysed at a time under the lock: some milliseconds."""
_PUT_AT_MOST = 4 * FLUSH_ROWS
"""More missing rows than this are written to the index before a search."""
_MOST_HELD = 1 << 13
"""Rows kept until they are indexed; further ones are read again."""
_PAUSE_S = 0.0001
"""Pause between parts of a batch, which lets a search run: a lock that is taken again at once is given to no other."""


class TextSearch:
    """Search of the rows' texts. Needs its owner's `lock`, except for methods that take it themselves.

    `rows_of` returns rows by their numbers, `is_replaced` whether some may have been erased since they were read.
    """

    def __init__(
        self,
        shelf: Shelf,
        lock: threading.RLock,
        versions: "Callable[[], array[int]]",
        rows_of: Callable[[Sequence[int]], Iterable[Observation]],
        is_replaced: Callable[[], bool],
    ) -> None:
        self._shelf = shelf
        self._lock = lock
        self._versions = versions
        self._rows_of = rows_of
        self._is_replaced = is_replaced
        self._index: TextIndex | None = None
        self._stale: dict[int, Observation | None] = {}
        """Rows to index by number, with the row itself if it is known."""
        self._is_whole = False
        self._writing = threading.Lock()
        self.progress: Progress | None = None

    def note(self, number: int, row: Observation | None = None) -> None:
        """Note that the row is new, or that its text changed. `row` is the row as it is now, if the caller has it."""
        if self._index is not None:
            self._stale[number] = row if len(self._stale) < _MOST_HELD else None

    def caught_up(self, *, is_fresh: bool = False) -> "TextIndex":
        """Return the index, with all rows in it; with `is_fresh`, a newer one on the shelf is not looked for."""
        index = self._index or self._open_index()
        if not is_fresh and index.refresh():
            self._is_whole = False
        if not self._is_whole:
            self._fill(index)
        if self._stale:
            self._put(index, self._stale)
            self._stale.clear()
        return index

    def is_behind(self) -> bool:
        """Return whether so many rows are missing that `write_missing` should write them before a search."""
        index = self._index or self._open_index()
        return not self._is_whole and len(index.uncovered(self._versions())) > _PUT_AT_MOST

    def write_missing(self) -> None:
        """Write all missing rows while others read and write; called without the lock."""
        with self._writing:
            with self._lock:
                index = self._index if self.is_behind() else None
            if index is not None:
                self._write_all(index)

    def erase(self, numbers: Collection[int]) -> None:
        """Remove the texts of these rows from memory and every file of the index before returning."""
        index = self._index or self._open_index()
        self._is_whole = False  # if this fails, the remaining rows are found again
        if index.shelf is not self._shelf:
            self._shelf.clear()
        index.erase(numbers)
        for number in numbers:
            self._stale.pop(number, None)

    def rebuild(self, progress: Progress | None) -> None:
        """Delete the index and write it again, however small it is."""
        self.close()
        index = self._open_index()
        before, self.progress = self.progress, progress
        try:
            index.erase(range(len(self._versions())))
            self._write_all(index)
        except (OSError, StoreError) as error:
            logger.warning("the index of %s cannot be written again: %s", self._shelf.name, error)
        finally:
            self.progress = before
        self.caught_up()

    def has_batch(self, least: int = FLUSH_ROWS) -> bool:
        """Return whether at least this many rows are only in memory."""
        index = self._index  # others may close it meanwhile
        return index is not None and index.pending + len(self._stale) >= least

    def analyse_noted(self) -> None:
        """Analyse a batch of noted rows, a few at a time, so that no search waits for all of it."""
        while len(self._stale) >= _FEW:
            with self._lock:
                if self._index is None:
                    return
                few = dict(islice(self._stale.items(), _FEW))
                self._put(self._index, few)
                for number in few:
                    del self._stale[number]
            time.sleep(_PAUSE_S)

    def index_batch(self, least: int = FLUSH_ROWS, pause_s: float = _PAUSE_S) -> bool:
        """Write a batch of at least this many rows without blocking other work; return whether there may be another."""
        try:
            with self._lock:
                index = self.caught_up() if self._index is not None else None
                plan = index.plan(least) if index is not None else None
            if plan is None or index is None:
                return False
            published = index.write(plan, (), lambda: self._is_current(index), lambda: time.sleep(pause_s))
            with self._lock:
                if published is not None and index is self._index:
                    index.adopt(published)
                    return True
        except (OSError, StoreError) as error:
            logger.warning("the index of %s could not be updated and stays in memory: %s", self._shelf.name, error)
        return False

    def write_for_next(self) -> None:
        """Write rows that are only in memory for the next process, if they are many. A failure only costs time."""
        if self.has_batch(LEAST_ROWS):
            self.index_batch(LEAST_ROWS, 0)

    def close(self) -> None:
        """Close everything; files on the disk stay."""
        self._index = None
        self._stale.clear()
        self._is_whole = False

    def _open_index(self) -> "TextIndex":
        from chatbot.stores.observations.index import TextIndex

        self._index = TextIndex.opened(self._shelf)
        self._is_whole = False
        return self._index

    def _fill(self, index: "TextIndex") -> None:
        missing = index.uncovered(self._versions())
        if len(missing) > _PUT_AT_MOST:
            self._write_all(index)
            missing = index.uncovered(self._versions())
        self._put(index, dict.fromkeys(missing))
        self._is_whole = True

    def _write_all(self, index: "TextIndex") -> None:
        rows = len(self._versions())
        if self.progress is None:
            logger.info("indexing %d rows in %s", rows, self._shelf.name)
        plans = index.rebuild_plans(rows)
        while True:
            with self._lock:
                plan = next(plans, None)
            if plan is None:
                return
            try:
                published = index.write(plan, self._documents(plan), lambda: self._is_current(index))
                with self._lock:
                    if published is not None:
                        index.adopt(published)
                    elif not index.refresh():
                        return
            except (OSError, StoreError) as error:
                logger.warning("the index of %s is incomplete, the rest stays in memory: %s", self._shelf.name, error)
                return
            if self.progress is not None:
                self.progress(plan.end, rows)

    def _is_current(self, index: "TextIndex") -> bool:
        """Return False once rows were erased: the texts were read without the journal's lock and may be among them."""
        return not self._is_replaced() and self._index is index

    def _put(self, index: "TextIndex", noted: Mapping[int, Observation | None]) -> None:
        """Put rows into the index by their numbers; rows given as None are read. A row of version 0 has no text."""
        versions, numbers = self._versions(), list(noted)
        for part in chunks(numbers, _AT_ONCE):
            unread = [number for number in part if noted[number] is None and versions[number]]
            read = iter(self._rows_of(unread) if unread else ())
            for number in part:
                version = versions[number]
                index.put(number, version, document_of(noted[number] or next(read)) if version else {})

    def _documents(self, plan: "Plan") -> Iterator[tuple[int, int, Document]]:
        for begin in range(plan.start, plan.end, _AT_ONCE):
            numbers = range(begin, min(begin + _AT_ONCE, plan.end))
            with self._lock:
                versions = self._versions()[begin : numbers.stop]
                read = iter(self._rows_of(list(compress(numbers, versions))))
            for number, version in zip(numbers, versions, strict=True):
                yield number, version, document_of(next(read)) if version else {}


def document_of(row: Observation) -> Document:
    """Return the terms of an observation by field of the index, with those of its day and of dates that it names."""
    texts: dict[str, list[str]] = {}
    for field, value in zip(SEARCHED.values(), searched_of(row), strict=True):
        if value:
            texts.setdefault(field, []).append(value if isinstance(value, str) else "\n".join(value))
    at = local(row.created_at)
    dates = [*day_terms(at.date()), *date_terms(row.text(), at)]
    found = {name: words for name, parts in texts.items() if (words := terms("\n".join(parts)))}
    return found | {"dates": dates}
