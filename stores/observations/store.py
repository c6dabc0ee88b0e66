"""Observations over any `Log`: the contract for async callers, each operation one hop into a thread.

`LoggedObservations` is what an engine inherits that brings a log of its own; `ObservationFileStore` is the plug-in
`observations`, whose log is a file.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from shlex import quote
from typing import Any, ClassVar

from chatbot.stores.access import View
from chatbot.stores.base import ObservationStore
from chatbot.stores.cache import Cache
from chatbot.stores.candidates import Candidates, Question
from chatbot.stores.errors import StoreError, UnsafePath
from chatbot.stores.fields import how_many
from chatbot.stores.flaws import Flaw
from chatbot.stores.group_commit import GroupCommit
from chatbot.stores.home import Home
from chatbot.stores.json_lines import record_of
from chatbot.stores.log import Log
from chatbot.stores.moment import Moment, may_wait, present_moment, present_moments
from chatbot.stores.observation import Observation, Triple
from chatbot.stores.observations import log, search
from chatbot.stores.observations.folder_shelf import FolderShelf
from chatbot.stores.observations.keeper import Keeper, Request
from chatbot.stores.observations.log import FileLog
from chatbot.stores.observations.snapshot import CachedSnapshots, Snapshots
from chatbot.stores.on_disk.examination import bad_lines
from chatbot.stores.query import (
    Corpus,
    Facet,
    FactFilter,
    Filter,
    Labelled,
    Match,
    Order,
    Page,
    Progress,
    Stats,
    VectorStats,
    Version,
)
from chatbot.stores.row_changes import ChangeCursor, Changes, Position
from chatbot.stores.row_events import Event, Outcome, parse_event
from chatbot.stores.row_state import RowState
from chatbot.stores.shelf import Shelf


class LoggedObservations(ObservationStore):
    """Keeps observations in the log that `open_log` opens, found through an index in the cache folder.

    `cache` is where caches are kept, the user's cache folder where it is empty: they belong to this machine, and can be
    deleted. `max_observations` and `ttl_days` are explained at `ObservationStore`.
    """

    saves_trips: ClassVar[bool] = False
    """True where a commit takes a round trip, so that one which only counts uses waits for another one."""

    def __init__(self, home: Home, *, max_observations: int = 0, ttl_days: float = 0, cache: str = "") -> None:
        super().__init__(home, max_observations=max_observations, ttl_days=ttl_days)
        root = Path(cache).expanduser() if cache else None
        self._cache = Cache(home, root)
        self._keeper = Keeper(
            self.open_log(home),
            self._cache,
            self.open_snapshots(),
            self.open_shelf,
            max_observations=max_observations,
            ttl_days=ttl_days,
        )
        self._commits: GroupCommit[Request] = GroupCommit(self._keeper.commit, self._keeper.compact)
        self._indexing: GroupCommit[None] = GroupCommit(lambda _: self._keeper.index())

    @abstractmethod
    def open_log(self, home: Any) -> Log:
        """Return the log of the identity whose memory folder, or address in a database, is `home`."""

    def open_shelf(self, name: str) -> Shelf:
        """Return the shelf of that name for what is derived from the log: a folder in the cache of this machine."""
        return FolderShelf.of(self._cache, name)

    def open_snapshots(self) -> Snapshots:
        """Return where snapshots of the table are kept: in the cache of this machine."""
        return CachedSnapshots(self._cache)

    async def commit(self, view: View, events: Sequence[Event]) -> list[Outcome]:
        """Append the events to the log; changes that arrive together are committed as a group."""
        if not events:
            return []
        moment, failed = present_moment(), may_wait()
        request = Request(view, events, moment=moment)
        if moment is None:
            await self._commits.add(request)
        elif failed is not None and self.saves_trips and all(event.kind == "use" for event in events):
            moment.put_off((self, ""), (request, failed))
            return []
        else:
            await self._commit_with_uses(request, moment)
        self._index_soon()
        return request.outcomes

    async def _commit_with_uses(self, request: Request, moment: Moment) -> None:
        """Commit a request, after the uses that wait in its moment; where it is refused, those are not counted."""
        uses = moment.waiting((self, ""))
        try:
            await self._commits.add(request, after=[use for use, _ in uses])
        except StoreError as error:
            for _, failed in uses:
                failed(error)
            raise

    def write_waiting(self, _: str) -> None:
        """Commit the uses that wait in this moment."""
        uses = [use for moment in present_moments() for use in moment.waiting((self, ""))]
        try:
            if uses:
                self._keeper.commit([use for use, _ in uses])
        except StoreError as error:
            for _, failed in uses:
                failed(error)

    async def get(self, view: View, ids: Sequence[str], *, current: bool = True) -> list[Observation]:
        """Read rows by their ids, in a thread."""
        return await asyncio.to_thread(self._keeper.get, view, ids, current=current)

    async def find(
        self,
        view: View,
        wanted: Filter,
        *,
        order: Order = "updated",
        ascending: bool = False,
        limit: int = 20,
        after: str | None = None,
    ) -> Page:
        """Read one page of rows, in a thread."""
        return await asyncio.to_thread(
            self._keeper.find, view, wanted, order=order, ascending=ascending, limit=limit, after=after
        )

    async def states(self, view: View, wanted: Filter, *, limit: int, after: str | None = None) -> list[RowState]:
        """Read the states of rows, in a thread."""
        return await asyncio.to_thread(self._keeper.states, view, wanted, limit=limit, after=after)

    async def match(self, view: View, terms: Sequence[str], wanted: Filter, *, limit: int = 200) -> list[Match]:
        """Search the text index, in a thread."""
        self._keeper.search.progress = self.progress
        return await asyncio.to_thread(self._keeper.match, view, terms, wanted, limit=limit)

    async def candidates(self, view: View, question: Question, wanted: Filter) -> Candidates:
        """Gather all candidates for recall in one thread, in which nothing changes."""
        self._keeper.search.progress = self.progress
        return await asyncio.to_thread(self._keeper.candidates, view, question, wanted)

    async def frequencies(self, view: View, terms: Sequence[str]) -> dict[str, int]:
        """Count the rows that hold each term, in a thread."""
        return await asyncio.to_thread(self._keeper.frequencies, view, terms)

    async def corpus(self, view: View) -> Corpus:
        """Measure the visible rows, in a thread."""
        return await asyncio.to_thread(self._keeper.corpus, view)

    async def sessions_about(self, view: View, terms: Sequence[str]) -> dict[str, float]:
        """Score the sessions that hold the terms, in a thread."""
        return await asyncio.to_thread(self._keeper.sessions_about, view, terms)

    async def neighbours(self, view: View, ids: Sequence[str], *, reach: int = 2) -> dict[str, dict[str, int]]:
        """Find the rows next to these in their session, in a thread."""
        return await asyncio.to_thread(self._keeper.neighbours, view, ids, reach=reach)

    async def nearest(
        self, view: View, vector: Sequence[float], wanted: Filter, *, model: str, limit: int = 200
    ) -> list[Match]:
        """Search the vectors of the cache folder, in a thread."""
        return await asyncio.to_thread(self._keeper.nearest, view, vector, wanted, model=model, limit=limit)

    async def later_alike(
        self, view: View, ids: Sequence[str], wanted: Filter, *, model: str, limit: int = 8
    ) -> dict[str, list[Match]]:
        """Compare the vectors of these rows with those of later ones, in a thread."""
        return await asyncio.to_thread(self._keeper.later_alike, view, ids, wanted, model=model, limit=limit)

    async def missing_vectors(self, view: View, *, model: str, limit: int = 100) -> list[Observation]:
        """Find rows without a vector, in a thread."""
        return await asyncio.to_thread(self._keeper.missing_vectors, view, model=model, limit=limit)

    async def put_vectors(self, model: str, vectors: Sequence[tuple[Observation, Sequence[float]]]) -> int:
        """Write vectors to the cache folder, in a thread."""
        return await asyncio.to_thread(self._keeper.put_vectors, model, vectors)

    async def forget_vectors(self) -> None:
        """Delete all vectors from the cache folder, in a thread."""
        await asyncio.to_thread(self._keeper.forget_vectors)

    async def vector_stats(self, view: View) -> VectorStats:
        """Count the rows with and without a vector, in a thread."""
        return await asyncio.to_thread(self._keeper.vector_stats, view)

    async def outline(self, view: View, ids: Sequence[str], wanted: Filter) -> list[Match]:
        """Return unscored matches for these rows, in a thread."""
        return await asyncio.to_thread(self._keeper.outline, view, ids, wanted)

    async def history(self, view: View, observation_id: str) -> list[Version]:
        """Replay the versions of a row from the log, in a thread."""
        return await asyncio.to_thread(self._keeper.history, view, observation_id)

    async def changes(self, view: View, after: Position | ChangeCursor | None, *, limit: int = 100) -> Changes:
        """Find the changes in the log, in a thread."""
        return await asyncio.to_thread(self._keeper.changes, view, after, limit=limit)

    async def facets(self, view: View, name: Labelled, *, limit: int = 100) -> list[Facet]:
        """Count the rows by a label, in a thread."""
        return await asyncio.to_thread(self._keeper.facets, view, name, limit=limit)

    async def facts(self, view: View, wanted: FactFilter, *, limit: int = 100) -> list[Triple]:
        """Read the facts that fit, in a thread."""
        return await asyncio.to_thread(self._keeper.facts, view, wanted, limit=limit)

    async def resolve(self, view: View, prefix: str, *, limit: int = 5) -> list[str]:
        """Find ids by their prefix, in a thread."""
        return await asyncio.to_thread(self._keeper.resolve, view, prefix, limit=limit)

    async def purge(
        self, view: View, ids: Sequence[str], *, who: str = "", why: str = "", alone: bool = False
    ) -> list[str]:
        """Erase rows from the log and all caches, in a thread."""
        return await asyncio.to_thread(self._keeper.purge, view, ids, who=who, why=why, alone=alone)

    async def stats(self, view: View) -> Stats:
        """Count rows and facts, in a thread."""
        return await asyncio.to_thread(self._keeper.stats, view)

    async def reindex(self, progress: Progress | None = None) -> int:
        """Rebuild the text index and return the number of rows, in a thread."""
        return await asyncio.to_thread(self._keeper.reindex, progress)

    async def aclose(self) -> None:
        """Wait for commits and indexing under way, then close the log."""
        await self._commits.finish()
        await self._indexing.finish()
        await asyncio.to_thread(self._keeper.close)

    def reindex_all(self) -> int:
        """Build every cache again; how many rows there are. Blocking."""
        return self._keeper.reindex()

    def _index_soon(self) -> None:
        """Index in the background, one batch at a time, while searches go on."""
        if self._indexing.idle and self._keeper.has_batch():
            self._indexing.post(None)


class ObservationFileStore(LoggedObservations):
    """Keeps observations in `observations.jsonl`; see `LoggedObservations`."""

    home: Path

    def open_log(self, home: Path) -> Log:
        """Open the journal file in the folder of the identity."""
        return FileLog(home)

    async def examine(self, *, verify: bool = False) -> list[Flaw]:
        """Check the journal and the index for damage."""
        return await asyncio.to_thread(examine, self.home, self._cache, self.reindex_all, verify=verify)


_BEHIND = 4096
"""Rows missing in the index before it is reported: searches find them anyway."""
_REINDEX = "chatbot memory reindex"


def examine(home: Path, cache: Cache, reindex: Callable[[], int], *, verify: bool) -> list[Flaw]:
    """Check the journal in `home` and the files derived from it; nothing if nothing was ever remembered."""
    path = home / log.NAME
    if not path.exists():
        return []
    added = 0

    def count(line: bytes) -> None:
        nonlocal added
        added += parse_event(record_of(line)).kind == "add"

    flaws = list(bad_lines("memory", path, count, lock=log.LOCK_NAME, verify=verify))
    if not flaws:
        flaws.append(Flaw("memory", "ok", f"{how_many(added, 'memory')} added in total, all readable"))
    return [*flaws, _index(cache, added, reindex)] if added else flaws


def _index(cache: Cache, rows: int, reindex: Callable[[], int]) -> Flaw:
    def again() -> str:
        return f"indexed {how_many(reindex(), 'memory')}"

    def renew() -> str:
        aside = cache.move_away()
        return f"moved to {aside}; {again()}"

    try:
        cache.check()
    except UnsafePath as error:
        is_there = cache.folder.is_symlink() or cache.folder.exists()
        command = f"rm -r {quote(str(cache.folder))} && {_REINDEX}"
        return Flaw("index", "bad", str(error), command, renew if is_there else None)
    from chatbot.stores.observations import manifest  # it loads NumPy

    known = manifest.read(FolderShelf.of(cache, search.NAME)).entries
    covered = known[-1].end if known else 0
    if rows - covered > _BEHIND:
        what = f"the index in {cache.folder} holds {covered:,} of {how_many(rows, 'row')}" if known else "no index yet"
        return Flaw("index", "note", f"{what}: the next search builds it", _REINDEX, again)
    return Flaw("index", "ok", f"in {cache.folder}")
