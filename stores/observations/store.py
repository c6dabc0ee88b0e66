"""Observations over any `Log`: the contract for async callers, each operation one hop into a thread.

An engine with a log of its own inherits `LoggedObservations`; `ObservationFileStore` is the plug-in `observations`,
whose log is a file.
"""

import asyncio
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime
from functools import partial, wraps
from itertools import compress, islice
from operator import and_
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Concatenate, ParamSpec, TypeVar

from chatbot.stores import query
from chatbot.stores.access import View, fold, is_same_project, may_see
from chatbot.stores.backend import Flaw
from chatbot.stores.base import CapOrNone, Days, ObservationStore
from chatbot.stores.cache import Cache, FolderShelf
from chatbot.stores.errors import InvalidValue, UnknownObservation, UnsafePath
from chatbot.stores.fields import how_many
from chatbot.stores.home import Home
from chatbot.stores.json_lines import record_of
from chatbot.stores.log import Log, Shelf
from chatbot.stores.loops import GroupCommit, in_thread, to_its_end
from chatbot.stores.observation import STATUSES, Observation, RowState, Triple
from chatbot.stores.observations import file_log, filters, search
from chatbot.stores.observations.arrays import INDEX_FORMAT, read_list
from chatbot.stores.observations.lookups import version
from chatbot.stores.observations.replica import Replica
from chatbot.stores.observations.table import Table
from chatbot.stores.observations.writer import Request, Writer
from chatbot.stores.on_disk.examination import bad_lines, shell_word
from chatbot.stores.records import chunks, expand_home
from chatbot.stores.row_events import Event, Outcome, as_strict_as, chain_of, parse_event

if TYPE_CHECKING:
    from chatbot.stores.observations.questions import Questions

Engine = TypeVar("Engine", bound="LoggedObservations")
Given = ParamSpec("Given")
Answer = TypeVar("Answer")


def reading(
    operation: Callable[Concatenate[Engine, View, Given], Answer],
) -> Callable[Concatenate[Engine, View, Given], Coroutine[Any, Any, Answer]]:
    """Make a blocking method an operation that reads: in a thread, with the lock held and all lines read."""

    @wraps(operation)
    def locked(self: Engine, view: View, /, *args: Given.args, **named: Given.kwargs) -> Answer:
        with self._replica.reading(view.fresh_at):
            try:
                return operation(self, view, *args, **named)
            except InvalidValue:
                if self._replica.catch_up():
                    raise
                return operation(self, view, *args, **named)  # another server rewrote the log while this one read it

    return in_thread(locked)


class LoggedObservations(ObservationStore):
    """Keeps observations in the log of `open_log`, with an index in the cache folder.

    `cache` is the folder for caches, by default the user's cache folder; they can be deleted.
    `max_observations` and `ttl_days` are explained in `ObservationStore`.
    """

    most_at_once: ClassVar[int] = 10_000
    """Maximum events that are committed together; no search begins meanwhile."""

    def __init__(self, home: Home, *, max_observations: CapOrNone = 0, ttl_days: Days = 0, cache: str = "") -> None:
        super().__init__(home, max_observations=max_observations, ttl_days=ttl_days)
        root = expand_home(cache) if cache else None
        self._cache = Cache(home, root)
        self._replica = Replica(self.open_log(home), self.open_shelf)
        self._writer = Writer(self._replica, max_observations=max_observations, ttl_days=ttl_days)
        self._commits: GroupCommit[Request] = GroupCommit(self._writer.commit, self._writer.compact)
        self._indexing: GroupCommit[None] = GroupCommit(lambda _: self._replica.index())

    @abstractmethod
    def open_log(self, home: Any) -> Log:
        """Return the log of the identity whose memory folder, or address in a database, is `home`."""

    def open_shelf(self, name: str) -> Shelf:
        """Return the shelf of that name for derived data: by default a folder in the cache of this machine."""
        return FolderShelf(self._cache.folder / name, self._cache)

    def cache_size(self) -> int:
        """Return how many bytes the shelves take."""
        return self._cache.size()

    async def commit(self, view: View, events: Sequence[Event]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for some in chunks(events, self.most_at_once):
            request = Request(view, some)
            await self._commits.add(request)
            outcomes += request.outcomes
            self._index_soon()
        return outcomes

    @reading
    def get(self, view: View, ids: Sequence[str], *, current: bool = True) -> list[Observation]:
        table = self._table
        _check_ids(ids)
        visible = table.visible(view, ("active",) if current else STATUSES)
        return self._replica.rows(table.numbers_seen(ids, visible), view)

    @reading
    def find(
        self,
        view: View,
        wanted: query.Filter,
        *,
        order: query.Order = "updated",
        ascending: bool = False,
        limit: int = 20,
        after: str | None = None,
    ) -> query.Page:
        limit = min(query.check_limit(limit), query.MOST_AT_ONCE)
        found = self._find_numbers(view, wanted, order, limit=limit + 1, ascending=ascending, after=after)
        rows = tuple(self._replica.rows(found[:limit], view))
        return query.Page(rows, rows[-1].id if rows and len(found) > limit else None)

    @reading
    def states(self, view: View, wanted: query.Filter, *, limit: int, after: str | None = None) -> list[RowState]:
        found = self._find_numbers(view, wanted, "created", limit=query.check_limit(limit), ascending=True, after=after)
        return list(map(self._table.state, found))

    @reading
    def match(self, view: View, terms: Sequence[str], wanted: query.Filter, *, limit: int = 200) -> list[query.Match]:
        return self._questions(view).match(terms, wanted, query.check_limit(limit))

    @in_thread
    def candidates(self, view: View, question: query.Question, wanted: query.Filter) -> query.Candidates:
        with self._replica.reading(view.fresh_at) as is_known:
            if not self._replica.search.is_behind():
                return self._questions(view, is_fresh=is_known).candidates(question, wanted)
            self._replica.search.progress = self.progress
        self._replica.search.write_missing()
        with self._replica.reading(view.fresh_at):
            return self._questions(view).candidates(question, wanted)

    @reading
    def nearest(
        self, view: View, vector: Sequence[float], wanted: query.Filter, *, model: str, limit: int = 200
    ) -> list[query.Match]:
        return self._questions(view).nearest(vector, wanted, model=model, limit=query.check_limit(limit))

    @reading
    def later_alike(
        self, view: View, ids: Sequence[str], wanted: query.Filter, *, model: str, limit: int = 8
    ) -> dict[str, list[query.Match]]:
        return self._questions(view).later_alike(ids, wanted, model=model, limit=query.check_limit(limit))

    def _questions(self, view: View, *, is_fresh: bool = False) -> "Questions":
        from chatbot.stores.observations.questions import Questions

        self._replica.search.progress = self.progress
        return Questions(self._replica, view, is_fresh=is_fresh)

    @reading
    def missing_vectors(self, view: View, *, model: str, limit: int = 100) -> list[Observation]:
        vectors, flags, limit = self._replica.vectors(), self._table.visible(view).flags, query.check_limit(limit)
        vectors.check(model)
        present = vectors.present(self._table.texts).tobytes()
        missing = (number for number in range(len(flags) - 1, -1, -1) if flags[number] and not present[number])
        return self._replica.each_row(list(islice(missing, limit)))

    @in_thread
    def put_vectors(self, model: str, vectors: Sequence[tuple[Observation, Sequence[float]]]) -> int:
        return self._writer.put_vectors(model, vectors)

    @in_thread
    def forget_vectors(self) -> None:
        self._writer.forget_vectors()

    @reading
    def vector_stats(self, view: View) -> query.VectorStats:
        flags, vectors = self._table.visible(view).flags, self._replica.vectors()
        embedded = sum(map(and_, flags, vectors.present(self._table.texts).tobytes()))
        return query.VectorStats(vectors.model, vectors.dimension, embedded, flags.count(1) - embedded)

    @reading
    def history(self, view: View, observation_id: str) -> list[query.Version]:
        table = self._table
        _check_ids([observation_id])

        def before(each: str) -> list[str]:
            return sorted(table.before.get(each, ()), key=table.numbers.__getitem__)

        chain = chain_of(observation_id, table.after.get, before, partial(table.is_seen, view=view))
        return self._versions(chain, view)

    @reading
    def written_at(self, view: View, ids: Sequence[str]) -> dict[str, datetime]:
        seen = [each for each in ids if self._table.is_seen(each, view)]
        return {each.observation.id: each.events[0].at for each in self._versions(seen, view) if each.events}

    @reading
    def facets(self, view: View, name: query.Labelled, *, limit: int = 100) -> list[query.Facet]:
        created, flags = self._table.created_at, self._table.visible(view).flags
        found = sorted(
            ((-len(numbers), value, numbers) for value, numbers in filters.holders(self._table, name, flags)),
            key=lambda each: each[:2],
        )[: query.check_limit(limit)]
        newest = [max(numbers, key=lambda number: (created[number], number)) for *_, numbers in found]
        facets = []
        for (_, value, numbers), row in zip(found, self._replica.each_row(newest), strict=True):
            spelled = next(each for each in query.values_of(row, name) if fold(each) == fold(value))
            facets.append(query.Facet(spelled, len(numbers), row.created_at))
        return facets

    @reading
    def facts(self, view: View, wanted: query.FactFilter, *, limit: int = 100) -> list[Triple]:
        return self._facts(view, wanted)[::-1][: query.check_limit(limit)]

    @reading
    def resolve(self, view: View, prefix: str, *, limit: int = 5) -> list[str]:
        found = sorted(each for each in self._table.numbers if each.startswith(prefix))
        return [each for each in found if self._table.is_seen(each, view)][: query.check_limit(limit)]

    @in_thread
    def purge(self, view: View, ids: Sequence[str], *, who: str = "", why: str = "", alone: bool = False) -> list[str]:
        return self._writer.purge(view, ids, who=who, why=why, alone=alone)

    @reading
    def stats(self, view: View) -> query.Stats:
        table = self._table
        by_status: Counter[str] = Counter()
        by_type: Counter[str] = Counter()
        by_visibility: Counter[str] = Counter()
        for number in table.numbers.values():
            status, guard = table.guard(number)
            if not may_see(guard, view):
                continue
            if status == "active" and not table.is_current(number, view.now):
                status = "expired"
            by_status[status] += 1
            if status == "active":
                by_type[table.type_of(number)] += 1
                by_visibility[guard.visibility] += 1
        return query.Stats(
            by_status=by_status,
            by_type=by_type,
            by_visibility=by_visibility,
            facts=len(self._facts(view, query.FactFilter())),
            journal_bytes=self._replica.log.position if view.is_owners else None,
            cache_bytes=self.cache_size() if view.is_owners else None,
        )

    @in_thread
    def reindex(self, progress: query.Progress | None = None) -> int:
        return self._replica.reindex(progress)

    async def aclose(self) -> None:
        await to_its_end(self._finish())  # if cancelled midway, the files would stay open

    async def _finish(self) -> None:
        await self._commits.finish()
        await self._indexing.finish()
        await asyncio.to_thread(self._replica.close)

    def _index_soon(self) -> None:
        """Index in the background, one batch at a time, while searches go on."""
        if self._indexing.idle and self._replica.has_batch():
            self._indexing.post(None)

    @property
    def _table(self) -> Table:
        return self._replica.table

    def _find_numbers(
        self, view: View, wanted: query.Filter, order: query.Order, *, limit: int, ascending: bool, after: str | None
    ) -> list[int]:
        table = self._table
        flags = table.visible(view, wanted.statuses).flags
        if after is not None and not table.is_seen(after, view.asking_all()):
            raise UnknownObservation.of([after])
        numbers, fits = filters.fitting_rows(table, wanted), filters.predicate(table, wanted)
        if numbers is None and filters.is_few(flags.count(1), len(flags)):
            numbers = set(compress(range(len(flags)), flags))
        elif numbers is not None and fits is not filters.always:
            numbers = set(filter(fits, filter(flags.__getitem__, numbers)))  # fewer to sort
        rows = filters.in_order(table, order, numbers, ascending=ascending, after=after)
        return list(islice(filter(fits, filter(flags.__getitem__, rows)), limit))

    def _versions(self, ids: Sequence[str], view: View) -> list[query.Version]:
        """Return these rows with their events, in one read."""
        replica, sees = self._replica, self._replica.sees_of(view)
        numbers = [self._table.numbers[each] for each in ids]
        replica.log.fetch(place for number in numbers for place in self._table.places(number))
        return [version(replica.row(number), replica.events(number), view, sees) for number in numbers]

    def _facts(self, view: View, wanted: query.FactFilter) -> list[Triple]:
        table = self._table
        flags = table.visible(view, STATUSES if view.erasing else ("active",)).flags
        found = []
        for fact in table.facts_like(wanted):
            if wanted.ids and fact.id not in wanted.ids:
                continue  # as most are: the other tests take longer
            source = table.numbers.get(fact.source or "")
            is_there = (view.erasing or fact.source is None) if source is None else flags[source]
            is_stated = view.erasing or fact.id not in table.retracted
            if is_there and is_stated and may_see(fact, view) and query.fact_fits(fact, wanted):
                found.append(fact if source is None else as_strict_as(fact, table.guard(source)[1]))
        return [fact for fact in found if wanted.project is None or is_same_project(fact.project, wanted.project)]


class ObservationFileStore(LoggedObservations):
    """Keeps observations in `observations.jsonl`, with an index in the cache folder `cache`."""

    home: Path
    most_at_once = 100

    def open_log(self, home: Path) -> Log:
        return file_log.FileLog(home)

    async def examine(self, *, verify: bool = False) -> list[Flaw]:
        return await asyncio.to_thread(examine, self.home, self._cache, self._replica.reindex, verify=verify)


_MOST_MISSING = 4096
"""Rows that may be missing in the index without a report: searches find them anyway."""
_REINDEX = "chatbot memory reindex"


def examine(home: Path, cache: Cache, reindex: Callable[[], int], *, verify: bool) -> list[Flaw]:
    """Check the journal in `home` and the files derived from it; nothing if nothing was ever remembered."""
    path = home / file_log.NAME
    if not path.exists():
        return []
    added = 0

    def count(line: bytes) -> None:
        nonlocal added
        added += parse_event(record_of(line)).kind == "add"

    if not (flaws := list(bad_lines("memory", path, count, lock=file_log.LOCK_NAME, verify=verify))):
        flaws.append(Flaw("memory", "ok", f"{how_many(added, 'memory')} added in total, all readable"))
    return [*flaws, _examine_index(cache, added, reindex)] if added else flaws


def _examine_index(cache: Cache, rows: int, reindex: Callable[[], int]) -> Flaw:
    def again() -> str:
        return f"indexed {how_many(reindex(), 'memory')}"

    def renew() -> str:
        return f"moved to {cache.move_away()}; {again()}"

    try:
        cache.check()
    except UnsafePath as error:
        is_above = not str(error).startswith(f"{cache.folder} ")
        command = f"chmod go= {shell_word(cache.folder.parent)}" if is_above else f"rm -r {shell_word(cache.folder)}"
        return Flaw("index", "bad", str(error), f"{command} && {_REINDEX}", None if is_above else renew)
    known = read_list(FolderShelf(cache.folder / search.NAME, cache), INDEX_FORMAT).pieces
    covered = known[-1].end if known else 0
    if rows - covered > _MOST_MISSING:
        what = f"the index in {cache.folder} holds {covered:,} of {how_many(rows, 'row')}" if known else "no index yet"
        return Flaw("index", "note", f"{what}: the next search builds it", _REINDEX, again)
    return Flaw("index", "ok", f"in {cache.folder}")


def _check_ids(ids: Sequence[object]) -> None:
    if wrong := [each for each in ids if not isinstance(each, str)]:
        raise InvalidValue(f"{wrong[0]!r:.80} is not an id")
