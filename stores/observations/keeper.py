"""The heart of the store: it reads the journal into a table, decides changes, and answers from table and index.

Every method blocks, is safe between threads, and begins by reading what other processes have added, so that a write
is seen by each read that begins after it returned.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from itertools import compress, islice
from operator import and_
from typing import TYPE_CHECKING
from weakref import WeakMethod

from chatbot.stores.access import Guard, View, may_see
from chatbot.stores.cache import Cache
from chatbot.stores.candidates import Candidates, Question, gathered, without_waiting
from chatbot.stores.caps import archiving, is_overfull, surplus, with_time_to_live
from chatbot.stores.errors import ClosedResource, InvalidValue, ReadOnlyFolder, StoreError, UnknownObservation
from chatbot.stores.fields import fold
from chatbot.stores.history import naming, shown, version
from chatbot.stores.log import Change, Log, Place, Writing, WrittenByOthers
from chatbot.stores.moment import Moment, carrying
from chatbot.stores.observation import STATUSES, Observation, Status, Triple
from chatbot.stores.observations import search, snapshot
from chatbot.stores.observations.log import event_of
from chatbot.stores.observations.rewriting import erasing, uncounted
from chatbot.stores.observations.search import TextSearch
from chatbot.stores.observations.snapshot import Snapshots
from chatbot.stores.observations.table import Table, always, is_few, text_digest
from chatbot.stores.open_folders import OPEN
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
    check_limit,
    fact_fits,
    page_limit,
    values_of,
)
from chatbot.stores.records import micros, moment
from chatbot.stores.row_changes import (
    BEGINNING,
    ChangeCursor,
    Changes,
    Key,
    Line,
    Position,
    before_time,
    newest,
    place_of,
    told_from,
)
from chatbot.stores.row_events import (
    ELSEWHERE,
    STATUS_AFTER,
    Event,
    Outcome,
    applied,
    as_strict_as,
    check_expected,
    check_fields,
    decide,
    implied,
    line_of,
    made_from,
    may_name,
    strength_in,
)
from chatbot.stores.row_state import RowState
from chatbot.stores.shelf import Shelf
from chatbot.stores.vectors import one_dimension, unit

if TYPE_CHECKING:
    from chatbot.stores.observations.row_vectors import Vectors

logger = logging.getLogger(__name__)

_KEPT_BODIES = 2_048
_SNAPSHOT_AFTER = 128
"""Lines of the journal that are worth a new snapshot, for each process that begins reads them."""
_SHARED_AFTER = 512
_SHARED_SHARE = 8
"""A shared snapshot is written again once so many lines came, and that share of what it has."""
_COMPACTED_FROM = 2_000
"""Lines that only count, from which on compaction is thought of."""
_COUNTED_IN_A_LINE = 10
"""A line that counts many rows is as long as if so many of them had a line."""


@dataclass(slots=True)
class Request:
    """Events that a caller wants committed together, and their outcomes."""

    view: View
    events: Sequence[Event]
    outcomes: list[Outcome] = field(default_factory=list)
    moment: Moment | None = None
    """The moment that they are of: what waits in it is written along with them."""


class Keeper:
    """All that is known of an identity's observations."""

    def __init__(
        self,
        log: Log,
        cache: Cache,
        snapshots: Snapshots,
        shelf: Callable[[str], Shelf],
        *,
        max_observations: int,
        ttl_days: float,
    ) -> None:
        self._log = log
        self._cache = cache
        self._snapshots = snapshots
        self._max_observations = max_observations
        self._ttl_days = ttl_days
        self._lock = threading.RLock()
        self._table = Table()
        self._bodies: OrderedDict[int, Observation] = OrderedDict()
        self._is_open = False
        self._is_closed = False
        self._is_steady = False
        self._rest = _resting(WeakMethod(self.rest))
        self._snapshot_lines = 0
        self._written_anew = 0
        """How often the log was another one than before: then all places in it are new."""
        self._shelf = shelf
        self._known_vectors: Vectors | None = None
        self.search = TextSearch(
            shelf(search.NAME), self._lock, lambda: self._table.texts, self._document_row, self._log.is_replaced
        )

    def commit(self, requests: Sequence[Request]) -> bool:
        """Decide and write; durable on return, which tells whether `compact` is due.

        Nobody waits for our disk: what is written is the truth for all who read, and is reported once it is durable.
        """
        with carrying([each.moment for each in requests if each.moment is not None]):
            try:
                return self._commit(requests, self._log.hoping())
            except WrittenByOthers:
                return self._commit(requests, self._log.locked())

    def _commit(self, requests: Sequence[Request], right: AbstractContextManager[Writing]) -> bool:
        with right as writing:
            writing.mend()
            with self._lock:
                self._catch_up()
                for request in requests:
                    request.outcomes = [self._commit_one(event, request.view, writing) for event in request.events]
                self._keep_cap(requests, writing)
                is_due = self._is_compaction_due()
            writing.release()
            writing.sync()
        return is_due

    def get(self, view: View, ids: Sequence[str]) -> list[Observation]:
        """Return the visible rows with these ids from the table, in the order asked."""
        with self._lock:
            flags = self._seen(view)
            numbers = [number for each in ids if (number := self._table.ids.number(each)) is not None]
            return self._rows([number for number in numbers if flags[number]], view)

    def find(self, view: View, wanted: Filter, *, order: Order, ascending: bool, limit: int, after: str | None) -> Page:
        """Return one page of the rows that fit, in the given order."""
        limit = page_limit(limit)
        with self._lock:
            found = self._found(view, wanted, order, limit=limit + 1, ascending=ascending, after=after)
            rows = tuple(self._rows(found[:limit], view))
            return Page(rows, rows[-1].id if rows and len(found) > limit else None)

    def states(self, view: View, wanted: Filter, *, limit: int, after: str | None) -> list[RowState]:
        """Return the states of the rows that fit, oldest first."""
        limit = check_limit(limit)
        with self._lock:
            found = self._found(view, wanted, "created", limit=limit, ascending=True, after=after)
            return list(map(self._table.state, found))

    def match(self, view: View, terms: Sequence[str], wanted: Filter, *, limit: int) -> list[Match]:
        """Return the rows that match the terms, ranked by the text index."""
        limit = check_limit(limit)
        with self._lock:
            self._catch_up()
            table = self._table
            if "active" not in wanted.statuses or not terms:
                return []
            from chatbot.stores.observations.columns import wanted_rows

            found = self.search.ranked(terms, table.visible(view), limit, wanted_rows(table, wanted))
            return table.matches(found.rows.tolist(), found.scores.tolist())

    def candidates(self, view: View, question: Question, wanted: Filter) -> Candidates:
        """Gather all candidates for recall under one lock and one look at the files."""
        with self._lock, self.search.steady(), self._steady():
            return without_waiting(gathered(_AtOnce(self), view, question, wanted))

    def frequencies(self, view: View, terms: Sequence[str]) -> dict[str, int]:
        """Count the visible rows that hold each term, from the text index."""
        with self._lock:
            self._catch_up()
            terms = list(dict.fromkeys(terms))
            found = self.search.holders(terms, self._table.visible(view))
            return {term: count for term, rows in zip(terms, found, strict=True) if (count := len(rows))}

    def corpus(self, view: View) -> Corpus:
        """Return the number and average length of the visible rows."""
        with self._lock:
            self._catch_up()
            return self.search.corpus(self._table.visible(view))

    def sessions_about(self, view: View, terms: Sequence[str]) -> dict[str, float]:
        """Score the sessions whose rows hold the terms."""
        with self._lock:
            self._catch_up()
            from chatbot.stores.observations.columns import sessions_about

            held = self.search.holders(list(dict.fromkeys(terms)), self._table.visible(view))
            return sessions_about(self._table, held)

    def neighbours(self, view: View, ids: Sequence[str], *, reach: int) -> dict[str, dict[str, int]]:
        """Return the rows next to each of these in their session, with their distance."""
        with self._lock:
            self._catch_up()
            table = self._table
            visible = table.visible(view)
            numbers = [number for each in dict.fromkeys(ids) if (number := table.ids.number(each)) is not None]
            return {
                table.ids[number]: {table.ids[other]: off for other, off in beside.items()}
                for number in numbers
                if visible.flags[number] and (beside := table.beside(number, visible, reach)) is not None
            }

    def nearest(self, view: View, vector: Sequence[float], wanted: Filter, *, model: str, limit: int) -> list[Match]:
        """Return the rows whose vectors are closest to this one."""
        limit = check_limit(limit)
        with self._lock:
            self._catch_up()
            vectors, table = self._vectors(), self._table
            vectors.check(model)
            if "active" not in wanted.statuses:
                return []
            from chatbot.stores.observations.columns import wanted_and_seen

            mask = wanted_and_seen(table, wanted, table.visible(view))
            numbers, cosines = vectors.nearest(unit(vector), table.texts, mask, limit)
            return table.matches(numbers.tolist(), cosines.tolist())

    def later_alike(
        self, view: View, ids: Sequence[str], wanted: Filter, *, model: str, limit: int
    ) -> dict[str, list[Match]]:
        """For each of these rows the later ones whose vectors are closest to its own."""
        with self._lock:
            self._catch_up()
            vectors, table = self._vectors(), self._table
            vectors.check(model)
            if "active" not in wanted.statuses:
                return {}
            from chatbot.stores.observations.columns import wanted_and_seen

            visible = table.visible(view)
            mask = wanted_and_seen(table, wanted, visible)
            numbers = {number: each for each in ids if (number := table.ids.number(each)) is not None}
            seen = [number for number in numbers if visible.flags[number]]
            found = vectors.later_alike(seen, table.texts, mask, check_limit(limit))
            return {
                numbers[number]: table.matches(rows.tolist(), cosines.tolist())
                for number, (rows, cosines) in found.items()
            }

    def missing_vectors(self, view: View, *, model: str, limit: int) -> list[Observation]:
        """Return the visible rows without a current vector, newest first."""
        limit = check_limit(limit)
        with self._lock:
            flags = self._seen(view)
            vectors = self._vectors()
            vectors.check(model)
            present = vectors.present(self._table.texts).tobytes()
            missing = (number for number in range(len(flags) - 1, -1, -1) if flags[number] and not present[number])
            return [self._row(number) for number in islice(missing, limit)]

    def put_vectors(self, model: str, vectors: Sequence[tuple[Observation, Sequence[float]]]) -> int:
        """Store vectors of rows whose text is unchanged, and return how many."""
        dimension = one_dimension(each for _, each in vectors)
        with self._alone():
            vectors_ = self._vectors()
            vectors_.check(model, dimension)
            numbers, texts = self._table.numbers, self._table.texts
            kept = {
                number: (number, digest, unit(values))
                for row, values in vectors
                if (number := numbers.get(row.id)) is not None
                and (digest := text_digest(row)) == texts[number]
                and not vectors_.has(number, digest)
            }
            if kept:
                vectors_.add(model, dimension, kept.values(), texts)
        return len(kept)

    def forget_vectors(self) -> None:
        """Delete the vector files of this identity."""
        with self._alone():
            self._vectors().remove()

    def vector_stats(self, view: View) -> VectorStats:
        """Count the visible rows with and without a vector."""
        with self._lock:
            flags = self._seen(view)
            vectors = self._vectors()
            present = vectors.present(self._table.texts).tobytes()
            embedded = sum(map(and_, flags, present))
            return VectorStats(vectors.model, vectors.dimension, embedded, flags.count(1) - embedded)

    def outline(self, view: View, ids: Sequence[str], wanted: Filter) -> list[Match]:
        """Return a match with a score of 0 for each of these rows that fits."""
        with self._lock:
            flags = self._seen(view)
            table = self._table
            if "active" not in wanted.statuses:
                return []
            fitting = table.fitting(wanted)
            numbers = [number for each in ids if (number := table.ids.number(each)) is not None and flags[number]]
            chosen = [number for number in filter(table.test(wanted), numbers) if fitting is None or number in fitting]
            return table.matches(chosen, [0.0] * len(chosen))

    def history(self, view: View, observation_id: str) -> list[Version]:
        """Return the versions of a row, replayed from the log."""
        with self._lock:
            self._catch_up()
            table = self._table
            if table.number_seen(observation_id, view) is None:
                return []

            def after(each: str) -> str | None:
                later = table.after.get(each)
                return later if later is not None and table.number_seen(later, view) is not None else None

            def before(each: str) -> list[str]:
                return sorted(
                    (id_ for id_ in table.before.get(each, ()) if table.number_seen(id_, view) is not None),
                    key=table.numbers.__getitem__,
                )

            line = [table.numbers[each] for each in line_of(observation_id, after, before)]
            sees = naming(view, self._guard_of)
            return [version(self._row(number), self._events(number), view, sees) for number in line]

    def changes(self, view: View, after: Position | ChangeCursor | None, *, limit: int) -> Changes:
        """Return what happened to visible rows behind a position. Reads no line of any other row."""
        limit = page_limit(limit)
        with self._lock, self._steady():
            end = (self._log.position - 1, len(self._table.starts))
            begin = end if after is None else self._key_behind(after, view)
            lines = self._lines_behind(begin, view) if begin < end else []
            items, key = told_from(lines, self._dated, self._shown_to(view), view, limit=limit)
            is_all = key is None or key == lines[-1][0]
            position = items[-1].position if items else self._position(after, view)
            key = end if is_all or key is None else key
            return Changes(tuple(items), ChangeCursor(self._written_anew, key, self._rows_by(key), position), is_all)

    def facets(self, view: View, name: Labelled, *, limit: int) -> list[Facet]:
        """Count the visible rows by each value of a label, most frequent first."""
        with self._lock:
            flags = self._seen(view)
            created = self._table.created_at
            found = sorted(
                ((-len(numbers), value, numbers) for value, numbers in self._table.holders(name, flags)),
                key=lambda each: each[:2],
            )
            facets = []
            for _, value, numbers in found[: check_limit(limit)]:
                newest = max(numbers, key=lambda number: (created[number], number))
                spelled = next(each for each in values_of(self._row(newest), name) if fold(each) == fold(value))
                facets.append(Facet(spelled, len(numbers), moment(created[newest])))
            return facets

    def facts(self, view: View, wanted: FactFilter, *, limit: int) -> list[Triple]:
        """Return the facts that fit, newest first."""
        with self._lock:
            found = self._facts(view, wanted)
        return found[::-1][: check_limit(limit)]

    def resolve(self, view: View, prefix: str, *, limit: int) -> list[str]:
        """Return the ids of visible rows that begin with the prefix, sorted."""
        with self._lock:
            self._catch_up()
            found = sorted(each for each in self._table.numbers if each.startswith(prefix))
            seen = [each for each in found if self._table.number_seen(each, view) is not None]
        return seen[: check_limit(limit)]

    def purge(self, view: View, ids: Sequence[str], *, who: str = "", why: str = "", alone: bool = False) -> list[str]:
        """Erase rows, and what was derived from them, from the log and all caches."""
        everything = view.asking_all()
        with self._alone() as writing:
            asked = [each for each in dict.fromkeys(ids) if self._is_seen_or_behind(each, everything)]
            stated = self._table.triples
            facts = [each for each in dict.fromkeys(ids) if each in stated and may_name(stated[each], view, self)]
            derived = [] if alone else made_from(asked, self.derived_from)
            gone = [each for each in asked if each in self._table.numbers]
            gone += sorted(derived, key=self._table.numbers.__getitem__)
            if not gone and not facts:
                raise UnknownObservation.of(ids)
            check_expected([each for each in asked if each in self._table.numbers], everything, self)
            seen = [each for each in gone if self._table.number_seen(each, everything) is not None]
            self._snapshots.remove()
            numbers = {self._table.numbers[each] for each in gone}
            self.search.erase(numbers)
            self._vectors().erase(numbers)
            begun = {self._table.starts[number]: (number, self._table.ids[number]) for number in numbers}
            change = erasing(begun, view.now, who=who, why=why, facts=facts, before=self._table.ids.erased)
            self._rewrite(writing, change, besides=numbers)
            for number in numbers:
                self._bodies.pop(number, None)
            self._table.erase(numbers)
            self._table.erase_triples(facts)
            self.search.erase(numbers)  # again, for a process that read the rows before may have indexed them meanwhile
        return seen + facts

    def stats(self, view: View) -> Stats:
        """Count the visible rows by status, type and visibility, and the facts."""
        with self._lock:
            self._catch_up()
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
            facts = len(self._facts(view, FactFilter()))
            return Stats(
                by_status=by_status,
                by_type=by_type,
                by_visibility=by_visibility,
                facts=facts,
                journal_bytes=self._log.position if view.is_owners else None,
                cache_bytes=self._cache.size() if view.is_owners else None,
            )

    def reindex(self, progress: Progress | None = None) -> int:
        """Throw every cache away and build it again from the journal."""
        with self._lock:
            self._snapshots.remove()
            self._start_again()
            self._catch_up()
            self.search.rebuild(progress)
            rows = len(self._table.numbers)
        self.save()  # not before our lock is free: a writer holds the journal's and waits for ours
        return rows

    def compact(self) -> None:
        """Put one line in the place of all that count for a row. History is kept. Failures are for later."""
        try:
            with self._alone() as writing:
                if self._is_compaction_due():
                    self._rewrite(writing)
        except (OSError, StoreError) as error:
            logger.warning("%s could not be compacted and stays whole: %s", self._log.name, error)

    def save(self, *, always: bool = True) -> None:
        """Write a snapshot of the table, if it is worth it. It is only a cache: a failure is told, and no more."""
        with self._lock:
            if not self._is_open or not (always or self._table.lines - self._snapshot_lines >= _SNAPSHOT_AFTER):
                return
        try:
            if not self._log.was_written():
                return  # not written by this program: it is a copy, which is only read
            with self._lock:
                self._snapshot_lines = self._table.lines
                mark = self._log.mark()
                made = snapshot.dump(self._table, mark)
            with self._log.locked(), self._lock:
                if mark.inode == self._log.mark().inode and not self._log.is_replaced():  # nothing was erased since
                    self._snapshots.write(made)
        except ReadOnlyFolder:
            logger.info("no snapshot of %s is kept: it can only be read", self._log.name)
        except (OSError, StoreError) as error:
            logger.warning("no snapshot of %s could be written: %s", self._log.name, error)

    def has_batch(self) -> bool:
        """Return whether enough is only in memory to be worth writing for others."""
        return self.search.has_batch() or self._is_snapshot_due()

    def index(self) -> None:
        """Move into the index what is in memory only, in batches, while everything else goes on."""
        while self.search.index_batch():
            pass
        if self._is_snapshot_due():
            self.save()

    def close(self) -> None:
        """Save what is worth it, one batch of the index at most, and let go of files."""
        self.save(always=False)
        self.search.leave()
        with self._lock:
            self._is_closed = True
            OPEN.closed(id(self))
            self.search.close()
            self._log.close()

    def observation(self, observation_id: str) -> Observation | None:
        """Return a row of the table, whatever its status."""
        number = self._table.ids.number(observation_id)
        return None if number is None else self._row(number)

    def state(self, observation_id: str) -> RowState | None:
        """Return the state of a row of the table, without its text."""
        number = self._table.ids.number(observation_id)
        return None if number is None else self._table.state(number)

    def settled(self, observation_id: str, at: datetime, decay_per_day: float) -> tuple[float, int] | None:
        """Return the strength and touches of a row after consolidation."""
        return self._table.settled(self._table.numbers[observation_id], micros(at), decay_per_day)

    def twin(self, row: Observation, view: View) -> Observation | None:
        """Return a current row with the same content, audience and namespace."""
        everything = view.asking_all()
        for number in self._table.twins(row):
            if self._table.is_current(number, view.now) and may_see(self._table.guard(number)[1], everything):
                return self._row(number)
        return None

    def triple(self, triple_id: str) -> Triple | None:
        """Return a fact of the table by its id, unless it was taken back."""
        return None if triple_id in self._table.retracted else self._table.triples.get(triple_id)

    def derived_from(self, observation_id: str) -> list[str]:
        """Return the ids of the rows that were derived from this one."""
        return [self._table.ids[number] for number in self._table.derived_from(observation_id)]

    def _found(
        self, view: View, wanted: Filter, order: Order, *, limit: int, ascending: bool, after: str | None
    ) -> list[int]:
        """The first rows that fit, by time."""
        flags = self._seen(view, wanted.statuses)
        table = self._table
        if after is not None and table.number_seen(after, view.asking_all()) is None:
            raise UnknownObservation(f"no memory has the id {after}")
        numbers, fits = table.fitting(wanted), table.test(wanted)
        if numbers is None and is_few(flags.count(1), len(flags)):
            numbers = set(compress(range(len(flags)), flags))
        elif numbers is not None and fits is not always:
            numbers = set(filter(fits, filter(flags.__getitem__, numbers)))  # fewer to be put in order
        rows = table.in_order(order, numbers, ascending=ascending, after=after)
        return list(islice(filter(fits, filter(flags.__getitem__, rows)), limit))

    def _seen(self, view: View, statuses: Sequence[Status] = ("active",)) -> bytearray:
        self._catch_up()
        return self._table.visible(view, statuses).flags

    def rest(self) -> bool:
        """Close open files until the next operation; false if one is under way."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            self._log.rest()
        finally:
            self._lock.release()
        return True

    @contextmanager
    def _steady(self) -> Iterator[None]:
        """Look at the files once, so that several questions get one answer. Needs our lock."""
        self._catch_up()
        self._is_steady = True
        try:
            yield
        finally:
            self._is_steady = False

    def _catch_up(self) -> None:
        if self._is_steady:
            return
        if self._is_closed:
            raise ClosedResource("the store of memories is closed")
        OPEN.used(id(self), self._rest)
        if not self._is_open:
            self._open()
        elif self._log.is_replaced():
            logger.info("%s was replaced: reading it again", self._log.name)
            self._start_again()
            self._open()
        for place, line in self._log.read_new():
            self._table.lines += 1
            event = event_of(line, self._log.name)
            if event is not None:
                self._fold_safely(event, place)

    def _key_behind(self, after: Position | ChangeCursor, view: View) -> Key:
        """Return the place behind which a reader goes on."""
        table = self._table
        if isinstance(after, ChangeCursor):
            if after.log == self._written_anew:
                return after.key
            known = next((number for number in range(after.rows - 1, -1, -1) if number not in table.ids.gone), -1)
            rows = BEGINNING if known < 0 else (table.starts[known], known)
            return max(rows, self._key_at(after.position, view) or BEGINNING)
        if not after.at:
            return BEGINNING
        if (key := self._key_at(after, view)) is not None:
            return key
        key = before_time(after.at, reversed(self._lines_behind(BEGINNING, view)), self._dated)
        return (self._log.position, 0) if key is None else key

    def _rows_by(self, key: Key) -> int:
        """Return how many rows were ever added up to a place."""
        starts, gone = self._table.starts, self._table.ids.gone
        known = (number for number in range(len(starts) - 1, -1, -1) if number not in gone and starts[number] <= key[0])
        return next(known, -1) + 1

    def _position(self, after: Position | ChangeCursor | None, view: View) -> Position:
        """Return the position behind which a reader is who was told nothing new."""
        if after is None:
            return newest(reversed(self._lines_behind(BEGINNING, view)), self._dated, view)
        return after.position if isinstance(after, ChangeCursor) else after

    def _key_at(self, position: Position, view: View) -> Key | None:
        """Return the place of a change, None where the caller sees no such row."""
        if not position.id or self._table.number_seen(position.id, view) is None:
            return None
        return place_of(position, self._dated(position.id))

    def _lines_behind(self, begin: Key, view: View) -> list[Line]:
        """Return the lines about visible rows behind a place, in order."""
        table = self._table
        seen = self._seen(view, STATUSES)
        found = [
            (place[0], number) for number, places in table.later.items() for place in places if place[0] >= begin[0]
        ]
        for number in range(len(table.starts) - 1, -1, -1):
            if number in table.ids.gone:
                continue
            if table.starts[number] < begin[0]:
                break
            found.append((table.starts[number], number))
        return [(key, table.ids[key[1]]) for key in sorted(set(found)) if key > begin and seen[key[1]]]

    def _dated(self, observation_id: str) -> list[tuple[Key, Event]]:
        """Return the events of a row with their places."""
        number = self._table.numbers[observation_id]
        places = ((start, number) for start, _ in self._table.places(number))
        return list(zip(places, self._events(number), strict=True))

    def _shown_to(self, view: View) -> Callable[[str], Observation]:
        """Return a function from an id to the row, for a caller who may see it."""
        sees = naming(view, self._guard_of)
        return lambda each: shown(self._row(self._table.numbers[each]), sees)

    def _vectors(self) -> Vectors:
        """The vectors, as they are by now."""
        if self._known_vectors is None:
            from chatbot.stores.observations.row_vectors import NAME, Vectors

            self._known_vectors = Vectors(self._shelf(NAME))
        self._known_vectors.catch_up()
        return self._known_vectors

    def _open(self) -> None:
        self._log.start_again()
        self._is_open = True
        try:
            found = self._snapshots.load()
            if found is None:
                return
            table, mark = found
            if self._log.resume(mark):
                self._table = table
                self._snapshot_lines = table.lines
                return
        except snapshot.BadSnapshot as error:
            logger.warning("the snapshot of %s is damaged and is built again: %s", self._log.name, error)
        try:
            self._snapshots.remove()
        except StoreError as error:
            logger.warning("a snapshot that is of no use stays: %s", error)

    def _start_again(self) -> None:
        self._written_anew += 1
        self._table = Table()
        self._bodies.clear()
        self.search.close()
        self._known_vectors = None
        self._is_open = False
        self._snapshot_lines = 0

    def _commit_one(self, event: Event, view: View, writing: Writing) -> Outcome:
        kept, outcome = decide(with_time_to_live(event, self._ttl_days), view, self)
        for each in kept:
            self._write(each, writing)
        return outcome

    def _write(self, event: Event, writing: Writing) -> None:
        place = writing.append(event)
        self._table.lines += 1
        self._fold(event, place)

    def _keep_cap(self, requests: Sequence[Request], writing: Writing) -> None:
        cap = self._max_observations
        if is_overfull(self._table.count_active(), cap):
            weighed = map(self._table.weighed, self._table.active())
            self._write(archiving(surplus(weighed, cap), requests[-1].events[-1].at, cap), writing)

    def _fold_safely(self, event: Event, place: Place) -> None:
        try:
            self._fold(event, place)
        except StoreError as error:
            logger.warning("%s holds an impossible change, which was passed over: %s", self._log.name, error)

    def _fold(self, event: Event, place: Place) -> None:
        table = self._table
        if event.row is not None:
            self._fold_new(event, event.row, place)
        elif event.kind == "purge":
            table.add_erased(event.ids, event.gaps)
            for along in implied(event):
                self._fold_change(along, place)
        elif event.kind in {"triple", "retract"}:
            table.fold_triples(event)
        elif event.kind in {"use", "counts", "consolidate"}:
            self._fold_counts(event)
        else:
            self._fold_change(event, place)

    def _fold_new(self, event: Event, row: Observation, place: Place) -> None:
        if self._table.ids.number(row.id) is not None:
            raise InvalidValue(f"the id {row.id} is used twice: the first row stands")
        number = self._table.add(row, place)
        self._keep_body(number, row)
        self.search.note(number, row)
        for each in implied(event):
            self._fold_change(each, place)

    def _fold_counts(self, event: Event) -> None:
        table = self._table
        for each in event.ids:
            number = table.ids.number(each)
            if number is None:
                continue  # erased meanwhile
            if event.kind == "use":
                table.use(number, event.at)
            elif event.kind == "consolidate":
                table.consolidate(number, *strength_in(event, each))
            else:
                table.set_counts(number, applied(self._row(number), event), event.fields.get(ELSEWHERE))
                self._bodies.pop(number, None)
        if event.kind != "counts":
            table.use_lines += 1 + len(event.ids) // _COUNTED_IN_A_LINE

    def _fold_change(self, event: Event, place: Place) -> None:
        for each in event.ids:
            number = self._table.ids.number(each)
            if number is None:
                continue  # erased meanwhile
            if event.kind in STATUS_AFTER and event.kind != "restore":
                self._restate(number, event)
            else:
                before = self._row(number)
                after = applied(before, event)
                self._table.change(before, after)
                self.search.note(number, after)
                self._keep_body(number, after)
            self._table.note_line(number, place)

    def _restate(self, number: int, event: Event) -> None:
        """A row stands elsewhere now, and says what it said: it need not be read for that."""
        check_fields(event)
        self._table.restate(number, event)
        self.search.note(number)
        self._bodies.pop(number, None)

    def _rows(self, numbers: Sequence[int], view: View) -> list[Observation]:
        """The observations, for a caller who may see them."""
        sees = naming(view, self._guard_of)
        self._log.fetch(
            place for number in numbers if number not in self._bodies for place in self._table.places(number)
        )
        return [shown(self._row(number), sees) for number in numbers]

    def _guard_of(self, observation_id: str) -> Guard | None:
        number = self._table.ids.number(observation_id)
        return None if number is None else self._table.guard(number)[1]

    def _row(self, number: int) -> Observation:
        """The observation, as it is now."""
        row = self._bodies.get(number)
        if row is None:
            row = self._read_row(number)
            self._keep_body(number, row)
        else:
            self._bodies.move_to_end(number)
        now = self._table.counted(row, number)
        if now is not row:
            self._bodies[number] = now
        return now

    def _keep_body(self, number: int, row: Observation) -> None:
        self._bodies[number] = row
        if len(self._bodies) > _KEPT_BODIES:
            self._bodies.popitem(last=False)

    def _read_row(self, number: int) -> Observation:
        first, *later = self._events(number)
        row = first.row
        if row is None or row.id != self._table.ids[number]:
            raise InvalidValue(f"{self._log.name} was changed in place: run `chatbot memory reindex`")
        for event in later:
            row = applied(row, event)
        return row

    def _events(self, number: int) -> list[Event]:
        """Return the events of a row, without those that count uses."""
        first, *later = map(self._log.event_at, self._table.places(number))
        row_id = self._table.ids[number]
        return [first, *(_about(row_id, event) for event in later)]

    def _document_row(self, number: int) -> Observation | None:
        """The row whose text is to be indexed, or None for one of which nothing is searched."""
        return self._row(number) if self._table.texts[number] else None

    def _facts(self, view: View, wanted: FactFilter) -> list[Triple]:
        table = self._table
        flags = self._seen(view, STATUSES if view.erasing else ("active",))
        found = []
        facts = (
            [each for key, each in table.triples.items() if key in wanted.ids] if wanted.ids else table.triples.values()
        )
        for fact in facts:
            source = table.numbers.get(fact.source or "")
            is_there = (view.erasing or fact.source is None) if source is None else flags[source]
            is_stated = view.erasing or fact.id not in table.retracted
            if is_there and is_stated and may_see(fact, view) and fact_fits(fact, wanted):
                found.append(fact if source is None else as_strict_as(fact, table.guard(source)[1]))
        return found

    def _is_snapshot_due(self) -> bool:
        """Return whether a server that begins would have to read many lines behind the snapshot that it finds."""
        known = self._snapshot_lines
        return self._snapshots.is_shared and self._table.lines - known >= max(_SHARED_AFTER, known // _SHARED_SHARE)

    def _is_compaction_due(self) -> bool:
        uses, lines = self._table.use_lines, self._table.lines
        return uses >= _COMPACTED_FROM and uses * 2 > lines

    def _is_seen_or_behind(self, observation_id: str, view: View) -> bool:
        """Return whether the caller may see the row or, if it was erased, a row derived from it."""
        table = self._table
        beside = [table.ids[number] for number in table.derived_from(observation_id)]
        asked = [observation_id] if observation_id in table.numbers else beside
        return any(table.number_seen(each, view) is not None for each in asked)

    def _rewrite(
        self, writing: Writing, change: Change = lambda line, _: line, besides: AbstractSet[int] = frozenset()
    ) -> None:
        """Rewrite the journal, with few lines in the place of all that count uses and strength of rows."""
        table = self._table
        counts = table.counting(besides)
        moved = writing.rewrite(uncounted(change), counts)
        self._written_anew += 1
        table.relocate(moved)
        table.lines = len(moved) + len(counts)
        table.use_lines = 0
        self._snapshot_lines = 0  # for there is none of this journal

    @contextmanager
    def _alone(self) -> Iterator[Writing]:
        """Lock the memory for reading and writing, with the journal sound and read to its end."""
        with self._log.locked() as writing, self._lock:
            writing.mend()
            self._catch_up()
            yield writing


def _about(row_id: str, event: Event) -> Event:
    """Return the event as it applies to one row."""
    return next((each for each in implied(event) if row_id in each.ids), event)


def _resting(rest: WeakMethod[Callable[[], bool]]) -> Callable[[], bool]:
    return lambda: (method := rest()) is None or method()


class _AtOnce:
    """The questions of `gathered`, answered by a keeper without waiting."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper

    async def match(self, view: View, terms: Sequence[str], wanted: Filter, *, limit: int) -> list[Match]:
        return self._keeper.match(view, terms, wanted, limit=limit)

    async def nearest(
        self, view: View, vector: Sequence[float], wanted: Filter, *, model: str, limit: int
    ) -> list[Match]:
        return self._keeper.nearest(view, vector, wanted, model=model, limit=limit)

    async def frequencies(self, view: View, terms: Sequence[str]) -> dict[str, int]:
        return self._keeper.frequencies(view, terms)

    async def corpus(self, view: View) -> Corpus:
        return self._keeper.corpus(view)

    async def sessions_about(self, view: View, terms: Sequence[str]) -> dict[str, float]:
        return self._keeper.sessions_about(view, terms)

    async def neighbours(self, view: View, ids: Sequence[str]) -> dict[str, dict[str, int]]:
        return self._keeper.neighbours(view, ids, reach=2)

    async def outline(self, view: View, ids: Sequence[str], wanted: Filter) -> list[Match]:
        return self._keeper.outline(view, ids, wanted)
