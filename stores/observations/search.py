"""Rows by their words: over the index in the cache, or without it where there can be none.

What was remembered is in memory before it is in the index, so each search sees each write before it. The index catches
up in the background, a batch at a time, while searches go on.
"""

from __future__ import annotations

import logging
import threading
from array import array
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from shutil import rmtree
from typing import TypeVar

from stores.bm25 import Document
from stores.cache import Cache
from stores.documents import document_of
from stores.errors import MissingFolder, StoreError
from stores.files import translated
from stores.observation import Observation
from stores.observations.scan import Scan
from stores.observations.text_index import FLUSH_ROWS, DamagedSegment, IndexUnusable, Plan, TextIndex, Written
from stores.observations.visible import Visible
from stores.query import Progress

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer")
RowOf = Callable[[int], Observation | None]
"""From a row's number to the row whose text is to be found, or None for one that was erased."""

NAME = "index"
_AT_ONCE = 128
"""Rows that are read while the lock is held, when a batch is made in the background."""
_PUT_AT_MOST = 4 * FLUSH_ROWS
"""More missing rows than this are written into the index before they are searched."""


class Search:
    """Guarded by `lock`, its owner's, but for `index_batch`, which takes it when it needs it.

    `is_replaced` tells whether rows may have been erased for good since they were read.
    """

    def __init__(
        self,
        cache: Cache,
        lock: threading.RLock,
        versions: Callable[[], array[int]],
        row_of: RowOf,
        is_replaced: Callable[[], bool],
    ) -> None:
        self._cache = cache
        self._lock = lock
        self._versions = versions
        self._row_of = row_of
        self._is_replaced = is_replaced
        self._index: TextIndex | Scan | None = None
        self._stale: set[int] = set()
        self._is_whole = False
        self.progress: Progress | None = None

    def note(self, number: int) -> None:
        """The row is new, or its text changed."""
        if self._index is not None:
            self._stale.add(number)

    def match(self, terms: Sequence[str], visible: Visible) -> dict[int, float]:
        """The scores of all visible rows that hold any of the terms."""
        return self._answered(lambda index: index.match(terms, visible))

    def holders(self, term: str, visible: Visible) -> Collection[int]:
        """The visible rows that hold the term, in whatever field."""
        return self._answered(lambda index: index.holders(term, visible))

    def erase(self, numbers: Collection[int]) -> None:
        """When this returns, nothing of the texts of these rows is in memory, or in any file of the index."""
        index = self._index or self._opened()
        if isinstance(index, Scan):
            self._remove_files()
        index.erase(numbers)
        self._stale.difference_update(numbers)
        self._is_whole = False

    def rebuild(self, progress: Progress | None) -> None:
        """Throw the index away and write it again, however small it is."""
        self.close()
        index = self._opened()
        if isinstance(index, TextIndex):
            index.erase(range(len(self._versions())))
            before, self.progress = self.progress, progress
            try:
                self._write_all(index)
            finally:
                self.progress = before
        self._caught_up()

    def has_batch(self) -> bool:
        """Whether enough is in memory only to be worth writing."""
        index = self._index
        return isinstance(index, TextIndex) and index.pending + len(self._stale) >= FLUSH_ROWS

    def index_batch(self) -> bool:
        """Write one batch, beside everything else; whether there may be another one."""
        try:
            with self._lock:
                index = self._caught_up() if self._index is not None else None
                plan = index.plan() if isinstance(index, TextIndex) else None
            if plan is None or not isinstance(index, TextIndex) or (written := self._write(index, plan)) is None:
                return False
            released = index.release(written)
            with self._lock:
                if index is self._index:
                    index.adopt(released)
                    return True
        except (OSError, StoreError) as error:
            logger.warning("the index of %s stays behind, which costs memory alone: %s", self._cache.folder, error)
        return False

    def leave_analysed(self) -> None:
        """Keep what was analysed for the next process, if it is much. It is only a cache: a failure is told."""
        try:
            if isinstance(index := self._index, TextIndex):
                index.leave_analysed(lambda: not self._is_replaced())
        except MissingFolder:
            return  # another process has removed the index
        except (OSError, StoreError) as error:
            logger.warning("what was analysed of %s is not kept, which costs time alone: %s", self._cache.folder, error)

    def close(self) -> None:
        """Let go of everything; what is on the disk stays."""
        if isinstance(self._index, TextIndex):
            self._index.close()
        self._index = None
        self._stale.clear()
        self._is_whole = False

    def _answered(self, ask: Callable[[TextIndex | Scan], Answer]) -> Answer:
        """What the index answers, without what is damaged in it."""
        while True:
            index = self._caught_up()
            try:
                return ask(index)
            except DamagedSegment as damage:
                if isinstance(index, TextIndex):
                    index.drop(damage)
                self._is_whole = False

    def _caught_up(self) -> TextIndex | Scan:
        """The index, with everything in it that there is."""
        index = self._index or self._opened()
        if isinstance(index, TextIndex) and index.refresh():
            self._is_whole = False
        if not self._is_whole:
            self._fill(index)
        for number in self._stale:
            self._put(index, number)
        self._stale.clear()
        return index

    def _opened(self) -> TextIndex | Scan:
        try:
            index = TextIndex(self._cache.prepare() / NAME, self._cache.key())
            index.open()
            self._index = index
        except (IndexUnusable, StoreError, OSError) as error:
            logger.warning("there is no text index, so every search reads everything, which is slow: %s", error)
            self._index = Scan()
        self._is_whole = False
        return self._index

    def _fill(self, index: TextIndex | Scan) -> None:
        missing = index.uncovered(self._versions())
        if missing and isinstance(index, TextIndex):
            missing = index.take_analysed(missing, self._versions())
        if len(missing) > _PUT_AT_MOST and isinstance(index, TextIndex):
            self._write_all(index)
            missing = index.uncovered(self._versions())
        for number in missing:
            self._put(index, number)
        self._is_whole = True

    def _write_all(self, index: TextIndex) -> None:
        rows = len(self._versions())
        if self.progress is None:
            logger.info("indexing %d rows in %s", rows, self._cache.folder)
        for plan in index.rebuild_plans(rows):
            try:
                written = self._write(index, plan)
                if written is None:
                    return
                index.publish(written)
            except MissingFolder:
                return  # another process, which can keep no index, has removed ours: what is missing stays in memory
            if self.progress is not None:
                self.progress(plan.end, rows)

    def _write(self, index: TextIndex, plan: Plan) -> Written | None:
        """Nothing, if rows were erased meanwhile: ours may be among them, for we read without the journal's lock."""
        return index.write(plan, self._documents(plan), lambda: not self._is_replaced() and self._index is index)

    def _put(self, index: TextIndex | Scan, number: int) -> None:
        index.put(number, self._versions()[number], _document(self._row_of(number)))

    def _documents(self, plan: Plan) -> Iterator[tuple[int, int, Document]]:
        for begin in range(plan.start, plan.end, _AT_ONCE):
            numbers = range(begin, min(begin + _AT_ONCE, plan.end))
            with self._lock:
                versions = self._versions()
                rows = [(number, versions[number], self._row_of(number)) for number in numbers]
            for number, version, row in rows:
                yield number, version, _document(row)

    def _remove_files(self) -> None:
        folder: Path = self._cache.folder / NAME
        with translated(self._cache.folder):
            while folder.is_symlink() or folder.exists():
                if folder.is_symlink():
                    folder.unlink()
                else:
                    with suppress(FileNotFoundError):  # another process removes it too
                        rmtree(folder)


def _document(row: Observation | None) -> Document:
    return {} if row is None else document_of(row)
