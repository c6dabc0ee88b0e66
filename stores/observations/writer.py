"""Writing of observations: changes are decided, appended to the log and made durable; erasing rewrites the log."""

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta

from msgspec import Struct, field, structs

from chatbot.stores.access import View, may_see
from chatbot.stores.decisions import decide
from chatbot.stores.errors import InvalidValue, StoreError, UnknownObservation
from chatbot.stores.log import LineChange, Writing, WrittenByOthers, erasing_change, without_counts
from chatbot.stores.observation import PROTECTED_TYPES, Observation, RowState, Triple
from chatbot.stores.observations.lookups import label_of, text_digest
from chatbot.stores.observations.replica import Replica
from chatbot.stores.records import micros, unit
from chatbot.stores.row_events import Event, Outcome, PriorState, check_expected, is_seen, made_from, may_name

logger = logging.getLogger(__name__)

_COMPACTED_FROM = 2_000
"""Minimum number of lines that only count uses before a compaction is due."""


class Request(Struct):
    """Events that a caller wants committed together, and their outcomes."""

    view: View
    events: Sequence[Event]
    outcomes: list[Outcome] = field(default_factory=list)


class Writer:
    """Changes a log and its replica. It is also the `PriorState` for `decide`."""

    def __init__(self, replica: Replica, *, max_observations: int, ttl_days: float) -> None:
        self._replica = replica
        self._log = replica.log
        self._max_observations = max_observations
        self._ttl_days = ttl_days

    def commit(self, requests: Sequence[Request]) -> bool:
        """Decide and write; durable on return. Returns whether `compact` is due.

        Readers do not wait for the disk: they see lines once written; the caller is answered once they are durable.
        """
        try:
            return self._commit(requests, self._log.optimistic())
        except WrittenByOthers:
            return self._commit(requests, self._log.locked())

    def _commit(self, requests: Sequence[Request], access: AbstractContextManager[Writing]) -> bool:
        with access as writing:
            with self._replica.reading():
                for request in requests:
                    request.outcomes = [self._commit_one(event, request.view, writing) for event in request.events]
                self._keep_cap(requests, writing)
                is_due = self._is_compaction_due()
            writing.release()
            writing.sync()
        with suppress(OSError, StoreError):  # rows that cannot be read now are tried again later
            self._replica.search.analyse_noted()
        return is_due

    def compact(self) -> None:
        """Merge the lines that count uses. History is kept. A failure is logged."""
        try:
            with self._alone() as writing:
                if self._is_compaction_due():
                    self._rewrite(writing)
        except (OSError, StoreError) as error:
            logger.warning("%s could not be compacted and stays as it is: %s", self._log.name, error)

    def purge(self, view: View, ids: Sequence[str], *, who: str, why: str, alone: bool) -> list[str]:
        """Erase rows, and what was derived from them, from the log and all caches."""
        replica = self._replica
        with self._alone() as writing:
            table = replica.table
            gone, seen, facts = erased_by(ids, view, self, table.triples, alone=alone)
            replica.snapshots.clear()
            numbers = {table.numbers[each] for each in gone}
            replica.search.erase(numbers)
            replica.vectors().erase(numbers)
            begun = {table.starts[number]: table.ids[number] for number in numbers}
            change = erasing_change(begun, view.now, who=who, why=why, facts=facts, before=table.ids.erased)
            self._rewrite(writing, change, without=numbers)
            replica.erase(numbers)
            table.erase_triples(facts)
            replica.search.erase(numbers)  # again: a process that read the rows before may have indexed them meanwhile
        return seen + facts

    def put_vectors(self, model: str, given: Sequence[tuple[Observation, Sequence[float]]]) -> int:
        """Store vectors of rows whose text is unchanged, and return how many."""
        dimension = one_dimension(each for _, each in given)
        with self._alone():
            vectors, table = self._replica.vectors(), self._replica.table
            vectors.check(model, dimension)
            present = vectors.present(table.texts)
            kept = [
                (number, digest, unit(values))
                for row, values in given
                if (number := table.numbers.get(row.id)) is not None
                and (digest := text_digest(row)) == table.texts[number]
                and not present[number]
            ]
            if kept:
                vectors.add(model, dimension, kept, table.texts)
        return len({number for number, _, _ in kept})

    def forget_vectors(self) -> None:
        """Delete the vectors of this identity."""
        with self._alone():
            self._replica.vectors().remove()

    def observation(self, observation_id: str) -> Observation | None:
        number = self._replica.table.numbers.get(observation_id)
        return None if number is None else self._replica.row(number)

    def state(self, observation_id: str) -> RowState | None:
        number = self._replica.table.numbers.get(observation_id)
        return None if number is None else self._replica.table.state(number)

    def next_strength(self, observation_id: str, at: datetime, decay_per_day: float) -> tuple[float, int] | None:
        table = self._replica.table
        return table.next_strength(table.numbers[observation_id], micros(at), decay_per_day)

    def twin(self, row: Observation, view: View) -> Observation | None:
        table = self._replica.table
        for number in table.twins(row):
            if table.is_current(number, view.now) and may_see(table.guard(number)[1], view.asking_all()):
                return self._replica.row(number)
        return None

    def triple(self, triple_id: str) -> Triple | None:
        table = self._replica.table
        return None if triple_id in table.retracted else table.triples.get(triple_id)

    def derived_from(self, observation_id: str) -> list[str]:
        table = self._replica.table
        return [table.ids[number] for number in table.labels.of(label_of("derived_from", observation_id))]

    def _commit_one(self, event: Event, view: View, writing: Writing) -> Outcome:
        kept, outcome = decide(with_time_to_live(event, self._ttl_days), view, self)
        for each in kept:
            self._replica.add(each, writing.append(each))
        return outcome

    def _keep_cap(self, requests: Sequence[Request], writing: Writing) -> None:
        cap, table = self._max_observations, self._replica.table
        if is_overfull(active := table.count_active(), cap):
            surplus = sorted(table.active(), key=table.weight)[: active - cap]
            event = archiving([table.ids[number] for number in surplus], requests[-1].events[-1].at, cap)
            self._replica.add(event, writing.append(event))

    def _is_compaction_due(self) -> bool:
        table = self._replica.table
        return table.use_lines >= _COMPACTED_FROM and table.use_lines * 2 > table.lines

    def _rewrite(
        self, writing: Writing, change: LineChange = lambda line, _: line, without: AbstractSet[int] = frozenset()
    ) -> None:
        """Rewrite the log, with the uses and strengths of rows merged into fewer lines."""
        counts = self._replica.table.count_events(without)
        self._replica.note_rewritten(writing.rewrite(without_counts(change), counts), len(counts))

    @contextmanager
    def _alone(self) -> Iterator[Writing]:
        """Lock the log for writing and the replica for reading, with the log repaired and read to its end."""
        with self._log.locked() as writing, self._replica.lock:
            self._replica.catch_up()
            yield writing


def erased_by(
    ids: Collection[str], view: View, known: PriorState, facts: Mapping[str, Triple], *, alone: bool
) -> tuple[list[str], list[str], list[str]]:
    """Return what purging `ids` erases: all rows, those of them that the caller may see, and facts.

    Rows derived from these go too, unless `alone`. `facts` are all facts by id. Raises `UnknownObservation` if there is
    nothing to erase.
    """
    everything, ids = view.asking_all(), list(dict.fromkeys(ids))
    asked = [each for each in ids if _may_erase(each, everything, known)]
    stated = [each for each in ids if each in facts and may_name(facts[each], view, known)]
    there = [each for each in asked if known.state(each) is not None]
    gone = there if alone else there + made_from(asked, known.derived_from)
    if not gone and not stated:
        raise UnknownObservation.of(ids)
    check_expected(there, everything, known)
    return gone, [each for each in gone if is_seen(each, everything, known)], stated


def _may_erase(observation_id: str, view: View, known: PriorState) -> bool:
    """Return whether the caller sees the row or, if it is erased already, a row derived from it."""
    asked = [observation_id] if known.state(observation_id) is not None else known.derived_from(observation_id)
    return any(is_seen(each, view, known) for each in asked)


def one_dimension(vectors: Iterable[Sequence[float]]) -> int:
    """Return the length of all of them, 0 if there are none. Raises `InvalidValue` if they differ or are empty."""
    lengths = {len(each) for each in vectors}
    if len(lengths) > 1 or 0 in lengths:
        raise InvalidValue(f"vectors of one model have one length, not {sorted(lengths)}")
    return lengths.pop() if lengths else 0


def is_overfull(active: int, cap: int) -> bool:
    """Return True if archiving is due: a tenth of slack keeps it rare."""
    return cap > 0 and active > cap + cap // 10


def archiving(ids: list[str], at: datetime, cap: int) -> Event:
    """Return the event that archives rows past a cap."""
    return Event(kind="archive", at=at, ids=tuple(ids), who="cap", why=f"more than {cap:,} memories")


def with_time_to_live(event: Event, ttl_days: float) -> Event:
    """Return the event with the default time to live for its new row."""
    row = event.row
    if not ttl_days or row is None or row.expires_at is not None or row.type in PROTECTED_TYPES:
        return event
    try:
        expires = row.created_at + timedelta(days=ttl_days)
    except OverflowError:
        return event  # the expiry is beyond the last date
    return structs.replace(event, row=replace(row, expires_at=expires))
