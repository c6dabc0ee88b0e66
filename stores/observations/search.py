"""Search of rows by words: in the index of the cache, or in memory if it cannot be written.

A row is in memory before it is in the index, so a search sees all earlier writes. The index catches up in the
background, a batch at a time, while searches go on. NumPy is loaded with the first search.
"""

from __future__ import annotations

import logging
import threading
import time
from array import array
from collections.abc import Callable, Collection, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from chatbot.stores.errors import StoreError
from chatbot.stores.log import Shelf
from chatbot.stores.observation import SEARCHED, Observation, searched_of
from chatbot.stores.observations.overlay import FLUSH_ROWS
from chatbot.stores.query import Progress
from chatbot.stores.text.analysis import terms
from chatbot.stores.text.bm25 import Document
from chatbot.stores.text.dates import date_terms, moment_terms

if TYPE_CHECKING:
    from chatbot.stores.observations.index import Plan, TextIndex

logger = logging.getLogger(__name__)

RowOf = Callable[[int], Observation | None]
"""Returns the row of a number; None if it was erased."""

NAME = "index"
LEAST_ROWS = 32
"""Fewer rows than this are left to the next process on closing, so that segments stay few."""
_AT_ONCE = 128
"""Rows read at a time under the lock while the index is rebuilt."""
_FEW = 32
"""Rows analysed at a time under the lock: some milliseconds."""
_PUT_AT_MOST = 4 * FLUSH_ROWS
"""More missing rows than this are written to the index before a search."""
_MOST_HELD = 1 << 13
"""Rows kept until they are indexed; further ones are read again."""
_PAUSE_S = 0.0001
"""Pause between rows of a batch, which lets a search run."""


class TextSearch:
    """Search of the rows' texts. Guarded by its owner's `lock`, except `index_batch`, which takes it when needed.

    `is_replaced` returns whether rows may have been erased permanently since they were read.
    """

    def __init__(
        self,
        shelf: Shelf,
        lock: threading.RLock,
        versions: Callable[[], array[int]],
        row_of: RowOf,
        is_replaced: Callable[[], bool],
    ) -> None:
        self._shelf = shelf
        self._lock = lock
        self._versions = versions
        self._row_of = row_of
        self._is_replaced = is_replaced
        self._index: TextIndex | None = None
        self._stale: dict[int, Observation | None] = {}
        """Rows to index by number, with the row itself if it is known."""
        self._is_whole = False
        self.progress: Progress | None = None

    def note(self, number: int, row: Observation | None = None) -> None:
        """Note that the row is new, or that its text changed. `row` is the row as it is now, if the caller has it."""
        if self._index is not None:
            self._stale[number] = row if len(self._stale) < _MOST_HELD else None

    def caught_up(self, *, is_fresh: bool = False) -> TextIndex:
        """Return the index, with all rows in it. `is_fresh` says that no other process published one since."""
        index = self._index or self._opened()
        if not is_fresh and index.refresh():
            self._is_whole = False
        if not self._is_whole:
            self._fill(index)
        for number, row in self._stale.items():
            self._put(index, number, row)
        self._stale.clear()
        return index

    def erase(self, numbers: Collection[int]) -> None:
        """Remove the texts of these rows from memory and every file of the index before returning."""
        index = self._index or self._opened()
        self._is_whole = False  # if this fails, the remaining rows are found again
        if index.shelf is not self._shelf:
            self._shelf.clear()
        index.erase(numbers)
        for number in numbers:
            self._stale.pop(number, None)

    def rebuild(self, progress: Progress | None) -> None:
        """Delete the index and write it again, however small it is."""
        self.close()
        index = self._opened()
        before, self.progress = self.progress, progress
        try:
            index.erase(range(len(self._versions())))
            self._write_all(index)
        except (OSError, StoreError) as error:
            logger.warning("the index of %s cannot be written again: %s", self._shelf.name, error)
        finally:
            self.progress = before
        self.caught_up()

    def has_batch(self) -> bool:
        """Return whether enough rows are only in memory to write a batch."""
        return self._index is not None and self._index.pending + len(self._stale) >= FLUSH_ROWS

    def take_in(self) -> None:
        """Analyse a batch of noted rows, a few at a time, so that no search waits for all of it."""
        while len(self._stale) >= _AT_ONCE:
            with self._lock:
                if self._index is None:
                    return
                for number, row in list(islice(self._stale.items(), _FEW)):
                    self._put(self._index, number, row)
                    del self._stale[number]

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

    def leave(self) -> None:
        """Write rows that are only in memory for the next process, if they are many. A failure only costs time."""
        index = self._index
        if index is not None and index.pending + len(self._stale) >= LEAST_ROWS:
            self.index_batch(LEAST_ROWS, 0)

    def close(self) -> None:
        """Close everything; files on the disk stay."""
        self._index = None
        self._stale.clear()
        self._is_whole = False

    def _opened(self) -> TextIndex:
        from chatbot.stores.observations.index import TextIndex

        self._index = TextIndex.opened(self._shelf)
        self._is_whole = False
        return self._index

    def _fill(self, index: TextIndex) -> None:
        missing = index.uncovered(self._versions())
        if len(missing) > _PUT_AT_MOST:
            self._write_all(index)
            missing = index.uncovered(self._versions())
        for number in missing:
            self._put(index, number)
        self._is_whole = True

    def _write_all(self, index: TextIndex) -> None:
        rows = len(self._versions())
        if self.progress is None:
            logger.info("indexing %d rows in %s", rows, self._shelf.name)
        for plan in index.rebuild_plans(rows):
            try:
                published = index.write(plan, self._documents(plan), lambda: self._is_current(index))
                if published is not None:
                    index.adopt(published)
                elif not index.refresh():
                    return
            except (OSError, StoreError) as error:
                logger.warning("the index of %s is incomplete, the rest stays in memory: %s", self._shelf.name, error)
                return
            if self.progress is not None:
                self.progress(plan.end, rows)

    def _is_current(self, index: TextIndex) -> bool:
        """Return False once rows were erased: the texts were read without the journal's lock and may be among them."""
        return not self._is_replaced() and self._index is index

    def _put(self, index: TextIndex, number: int, row: Observation | None = None) -> None:
        version = self._versions()[number]
        index.put(number, version, _document(row if row is not None and version else self._row_of(number)))

    def _documents(self, plan: Plan) -> Iterator[tuple[int, int, Document]]:
        for begin in range(plan.start, plan.end, _AT_ONCE):
            numbers = range(begin, min(begin + _AT_ONCE, plan.end))
            with self._lock:
                versions = self._versions()
                rows = [(number, versions[number], self._row_of(number)) for number in numbers]
            for number, version, row in rows:
                yield number, version, _document(row)


def document_of(row: Observation) -> Document:
    """Return the terms of an observation by field of the index, and of the dates that it names."""
    texts: dict[str, list[str]] = {}
    for field, value in zip(SEARCHED.values(), searched_of(row), strict=True):
        if value:
            texts.setdefault(field, []).append(value if isinstance(value, str) else "\n".join(value))
    dates = [*moment_terms(row.created_at), *date_terms(row.text(), row.created_at)]
    found = {name: words for name, parts in texts.items() if (words := terms("\n".join(parts)))}
    return found | {"dates": dates}


def _document(row: Observation | None) -> Document:
    return {} if row is None else document_of(row)
