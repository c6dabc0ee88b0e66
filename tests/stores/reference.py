"""The model that stores of observations are compared with: it writes nothing, and every question looks at every row."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from chatbot.stores import query
from chatbot.stores.access import Guard, View, is_same_project, may_see
from chatbot.stores.base import ObservationStore
from chatbot.stores.decisions import decide
from chatbot.stores.errors import OtherEmbedder, UnknownObservation
from chatbot.stores.observation import (
    LASTING_TYPES,
    PROTECTED_TYPES,
    SEARCHED,
    Observation,
    RowState,
    Triple,
    check_rate,
    next_strength,
)
from chatbot.stores.observations.lookups import sees_of, version, without_hidden_ids
from chatbot.stores.observations.questions import Questions
from chatbot.stores.observations.row_vectors import cosines, likely, rough_cosines
from chatbot.stores.observations.search import document_of
from chatbot.stores.observations.writer import archiving, erased_by, is_overfull, one_dimension, with_time_to_live
from chatbot.stores.query import Filter, Match
from chatbot.stores.records import Vector, unit
from chatbot.stores.row_events import Event, Outcome, apply, as_strict_as, chain_of, implied_events
from chatbot.stores.text.bm25 import rank, score_sessions


class ReferenceStore(ObservationStore):
    """Keeps observations for as long as it lives."""

    def __init__(self, home: Path, *, max_observations: int = 0, ttl_days: float = 0) -> None:
        super().__init__(home, max_observations=max_observations, ttl_days=ttl_days)
        self._rows: dict[str, Observation] = {}
        self._events: defaultdict[str, list[Event]] = defaultdict(list)
        self._triples: dict[str, Triple] = {}
        self._retracted: set[str] = set()
        self.numbers: dict[str, int] = {}
        self.model = ("", 0)
        self.vectors: dict[str, tuple[object, list[Vector]]] = {}

    async def commit(self, view: View, events: Sequence[Event]) -> list[Outcome]:
        outcomes = []
        for event in events:
            kept, outcome = decide(with_time_to_live(event, self.ttl_days), view, self)
            self._apply(kept)
            outcomes.append(outcome)
        active = [row for row in self._rows.values() if row.status == "active"]
        if events and is_overfull(len(active), self.max_observations):
            uses = {row.id: math.log1p(row.use_count + row.mention_count) for row in active}
            active.sort(key=lambda row: (row.type in PROTECTED_TYPES, row.current_strength + 0.1 * uses[row.id]))
            gone = [row.id for row in active[: len(active) - self.max_observations]]
            self._apply([archiving(gone, events[-1].at, self.max_observations)])
        return outcomes

    async def get(self, view: View, ids: Sequence[str], *, current: bool = True) -> list[Observation]:
        rows = [self._rows[each] for each in ids if each in self._rows and may_see(self._rows[each], view)]
        return self._shown([row for row in rows if row.is_current(view.now) or not current], view)

    async def find(
        self,
        view: View,
        wanted: Filter,
        *,
        order: query.Order = "updated",
        ascending: bool = False,
        limit: int = 20,
        after: str | None = None,
    ) -> query.Page:
        limit = min(query.check_limit(limit), query.MOST_AT_ONCE)
        rows = [row for row in self._rows.values() if may_see(row, view) and fits(row, wanted, view.now)]
        if after is not None:
            if after not in self._rows or not may_see(self._rows[after], view.asking_all()):
                raise UnknownObservation(f"no memory has the id {after}")
            begin = self._position(self._rows[after], order)
            rows = [row for row in rows if (self._position(row, order) > begin) == ascending and row.id != after]
        rows.sort(key=lambda row: self._position(row, order), reverse=not ascending)
        found = self._shown(rows[:limit], view)
        return query.Page(tuple(found), found[-1].id if 0 < limit < len(rows) else None)

    async def match(self, view: View, terms: Sequence[str], wanted: Filter, *, limit: int = 200) -> list[Match]:
        return BruteQuestions(self, view).match(terms, wanted, limit)

    async def nearest(
        self, view: View, vector: Sequence[float], wanted: Filter, *, model: str, limit: int = 200
    ) -> list[Match]:
        return BruteQuestions(self, view).nearest(vector, wanted, model=model, limit=limit)

    async def candidates(self, view: View, question: query.Question, wanted: Filter) -> query.Candidates:
        return BruteQuestions(self, view).candidates(question, wanted)

    async def states(self, view: View, wanted: Filter, *, limit: int, after: str | None = None) -> list[RowState]:
        page = await self.find(view, wanted, order="created", ascending=True, limit=limit, after=after)
        return list(map(RowState.of, page.rows))

    async def missing_vectors(self, view: View, *, model: str, limit: int = 100) -> list[Observation]:
        self.check_model(model)
        missing = [row for row in self.current(view) if not self.has_vector(row)]
        missing.sort(key=lambda row: self.numbers[row.id], reverse=True)
        return missing[: query.check_limit(limit)]

    async def put_vectors(self, model: str, vectors: Sequence[tuple[Observation, Sequence[float]]]) -> int:
        dimension = one_dimension(each for _, each in vectors)
        self.check_model(model, dimension)
        kept: dict[str, tuple[object, list[Vector]]] = {}
        for row, values in vectors:
            now = self._rows.get(row.id)
            if now is not None and _searched(now) == _searched(row) and not self.has_vector(now):
                kept.setdefault(row.id, (_searched(row), []))[1].append(unit(values))
        if kept:
            self.model = (model, dimension)
            self.vectors |= kept
        return len(kept)

    def check_model(self, model: str, dimension: int = 0) -> None:
        if self.model[0] and (self.model[0] != model or dimension not in {0, self.model[1]}):
            raise OtherEmbedder(f"{self.model[0]} is not {model}")

    async def forget_vectors(self) -> None:
        self.model = ("", 0)
        self.vectors.clear()

    async def vector_stats(self, view: View) -> query.VectorStats:
        rows = self.current(view)
        embedded = sum(map(self.has_vector, rows))
        return query.VectorStats(*self.model, embedded, len(rows) - embedded)

    async def history(self, view: View, observation_id: str) -> list[query.Version]:
        rows = self._rows

        def before(each: str) -> list[str]:
            return [row.id for row in rows.values() if row.superseded_by == each]

        line = chain_of(
            observation_id, lambda one: rows[one].superseded_by, before, lambda one: self._is_seen(one, view)
        )
        sees = sees_of(view, self._guard_of)
        return [version(rows[each], self._events[each], view, sees) for each in line]

    async def written_at(self, view: View, ids: Sequence[str]) -> dict[str, datetime]:
        lines = [one for each in ids for one in await self.history(view, each) if one.observation.id == each]
        return {each.observation.id: each.events[0].at for each in lines if each.events}

    async def facets(self, view: View, name: query.Labelled, *, limit: int = 100) -> list[query.Facet]:
        rows: defaultdict[str, list[Observation]] = defaultdict(list)
        for row in self.current(view):
            for value in dict.fromkeys(query.key_of(name, value) for value in query.values_of(row, name)):
                rows[value].append(row)
        found = []
        for value, holders in rows.items():
            newest = max(holders, key=lambda row: self._position(row, "created"))
            spelled = next(each for each in query.values_of(newest, name) if query.key_of(name, each) == value)
            found.append((-len(holders), value, query.Facet(spelled, len(holders), newest.created_at)))
        return [facet for *_, facet in sorted(found, key=lambda each: each[:2])[: query.check_limit(limit)]]

    async def facts(self, view: View, wanted: query.FactFilter, *, limit: int = 100) -> list[Triple]:
        sources = self.current(view)
        if view.erasing:  # what hangs on a row that is not current goes too
            sources = [row for row in self._rows.values() if may_see(row, view)]
        current = {row.id: Guard.of(row) for row in sources}
        found = [
            fact if fact.source is None else as_strict_as(fact, current[fact.source])
            for fact in self._triples.values()
            if may_see(fact, view)
            and (view.erasing or fact.id not in self._retracted)
            and (fact.source is None or fact.source in current)
            and query.fact_fits(fact, wanted)
        ]
        asked = wanted.project
        found = [fact for fact in found if asked is None or is_same_project(fact.project, asked)]
        return found[::-1][: query.check_limit(limit)]

    async def resolve(self, view: View, prefix: str, *, limit: int = 5) -> list[str]:
        found = sorted(row.id for row in self._rows.values() if row.id.startswith(prefix) and may_see(row, view))
        return found[: query.check_limit(limit)]

    async def purge(
        self, view: View, ids: Sequence[str], *, who: str = "", why: str = "", alone: bool = False
    ) -> list[str]:
        """Remove rows, and what was derived from them; no journal is written."""
        gone, seen, facts = erased_by(ids, view, self, self._triples, alone=alone)
        kept = {key: fact for key, fact in self._triples.items() if fact.source not in gone and key not in facts}
        self._triples = kept
        for each in gone:
            del self._rows[each], self.numbers[each]
            self._events.pop(each, None)
            self.vectors.pop(each, None)
        return seen + facts

    async def stats(self, view: View) -> query.Stats:
        seen = [row for row in self._rows.values() if may_see(row, view)]
        return query.Stats(
            by_status=Counter(query.status_now(row, view.now) for row in seen),
            by_type=Counter(row.type for row in seen if row.is_current(view.now)),
            by_visibility=Counter(row.visibility for row in seen if row.is_current(view.now)),
            facts=len(await self.facts(view, query.FactFilter(), limit=len(self._triples))),
        )

    def observation(self, observation_id: str) -> Observation | None:
        return self._rows.get(observation_id)

    def state(self, observation_id: str) -> RowState | None:
        row = self._rows.get(observation_id)
        return None if row is None else RowState.of(row)

    def next_strength(self, observation_id: str, at: datetime, decay_per_day: float) -> tuple[float, int] | None:
        row = self._rows[observation_id]
        strength = consolidated(row, at, decay_per_day)
        return None if strength is None else (strength, touches(row))

    def twin(self, row: Observation, view: View) -> Observation | None:
        everything = view.asking_all()
        for other in self._rows.values():
            same = (other.hash, other.agent_id, other.namespace, other.visibility, other.principal)
            if (
                same == (row.hash, row.agent_id, row.namespace, row.visibility, row.principal)
                and other.is_current(view.now)
                and may_see(other, everything)
            ):
                return other
        return None

    def triple(self, triple_id: str) -> Triple | None:
        return None if triple_id in self._retracted else self._triples.get(triple_id)

    def derived_from(self, observation_id: str) -> list[str]:
        return [row.id for row in self._rows.values() if observation_id in row.derived_from]

    def _shown(self, rows: Iterable[Observation], view: View) -> list[Observation]:
        """Return the observations, without ids that the caller may not know."""
        sees = sees_of(view, self._guard_of)
        return [without_hidden_ids(row, sees) for row in rows]

    def _guard_of(self, observation_id: str) -> Guard | None:
        row = self._rows.get(observation_id)
        return None if row is None else Guard.of(row)

    def _is_seen(self, observation_id: str, view: View) -> bool:
        return observation_id in self._rows and may_see(self._rows[observation_id], view)

    def current(self, view: View) -> list[Observation]:
        return [row for row in self._rows.values() if may_see(row, view) and row.is_current(view.now)]

    def has_vector(self, row: Observation) -> bool:
        return row.id in self.vectors and self.vectors[row.id][0] == _searched(row)

    def _position(self, row: Observation, order: query.Order) -> tuple[object, int]:
        return (row.created_at if order == "created" else row.updated_at, self.numbers[row.id])

    def _apply(self, events: Iterable[Event]) -> None:
        for event in events:
            if event.row is not None:
                self._add(event, event.row)
            if event.triple is not None:
                self._triples[event.triple.id] = event.triple
                self._retracted.discard(event.triple.id)
            if event.kind == "retract":
                self._retracted.update(event.ids)
                continue
            for each in event.ids:
                self._rows[each] = apply(self._rows[each], event)
                if event.kind not in {"use", "consolidate"}:
                    self._events[each].append(event)

    def _add(self, event: Event, row: Observation) -> None:
        self.numbers[row.id] = max(self.numbers.values(), default=-1) + 1
        self._rows[row.id] = row
        self._events[row.id].append(event)
        self._apply(implied_events(event))


class BruteQuestions(Questions):
    """Questions of one caller, answered by a look at every row."""

    def __init__(self, store: ReferenceStore, view: View) -> None:
        self.store = store
        self.now = view.now
        self.rows = store.current(view)

    def match(self, terms: Sequence[str], wanted: Filter, limit: int) -> list[Match]:
        numbers = self.store.numbers
        scores = rank({numbers[row.id]: document_of(row) for row in self.rows}, terms)
        found = [
            (scores[number], number, row)
            for row in self.rows
            for number in [numbers[row.id]]
            if number in scores and fits(row, wanted, self.now)
        ]
        found.sort(reverse=True, key=lambda each: each[:2])
        return [Match.of(row, score) for score, _, row in found[: query.check_limit(limit)]]

    def _nearest(self, vector: Sequence[float], wanted: Filter, model: str, limit: int) -> list[tuple[int, float]]:
        self.store.check_model(model, len(vector))
        limit = query.check_limit(limit)
        rows = [row for row in self.rows if self.store.has_vector(row) and fits(row, wanted, self.now)]
        rows.sort(key=lambda row: self.store.numbers[row.id])
        owned = [(row.id, each) for row in rows for each in self.store.vectors[row.id][1]]
        found = alike(unit(vector), memoryview(b"".join(each.tobytes() for _, each in owned)))
        nearest: dict[str, float] = {}
        for cosine, at in found:
            nearest.setdefault(owned[at][0], cosine)
        return [(self.store.numbers[each], cosine) for each, cosine in islice(nearest.items(), limit)]

    def _matches(self, numbers: Sequence[int], scores: Iterable[float]) -> list[Match]:
        """Replace that of `Questions.candidates`, which reads a table."""
        rows = {self.store.numbers[row.id]: row for row in self.rows}
        return [Match.of(rows[number], score) for number, score in zip(numbers, scores, strict=False)]

    def frequencies(self, terms: Sequence[str]) -> dict[str, int]:
        held = Counter(
            word for row in self.rows for word in {one for found in document_of(row).values() for one in found}
        )
        return {term: held[term] for term in terms if held[term]}

    def count(self) -> int:
        return len(self.rows)

    def sessions_about(self, terms: Sequence[str]) -> dict[str, float]:
        rows = [(row.session_id, document_of(row)) for row in self.rows if row.session_id]
        held = [(session, {word for words in document.values() for word in words}) for session, document in rows]
        distinct = dict.fromkeys(terms)
        return score_sessions([Counter(session for session, words in held if term in words) for term in distinct])


def consolidated(row: Observation, at: datetime, decay_per_day: float) -> float | None:
    """Return the strength of the row at the moment `at`, from 0 to 1; None if it is unchanged."""
    check_rate(decay_per_day)
    since = row.consolidated_at or row.updated_at
    elapsed = (at - since).total_seconds()
    quiet = min(elapsed, max(0.0, (at - row.quiet_since).total_seconds()))
    rate = decay_per_day / 2 if row.type in LASTING_TYPES else decay_per_day
    new = touches(row) - row.consolidated_touches
    return next_strength(row.current_strength, row.importance, new, elapsed=elapsed, quiet=quiet, rate=rate)


def touches(row: Observation) -> int:
    """Return how often the row was used, mentioned or confirmed."""
    return row.use_count + row.mention_count + row.confirmed_count


def _searched(row: Observation) -> object:
    return [getattr(row, name) for name in SEARCHED]


def alike(asked: Vector, rows: memoryview) -> Iterator[tuple[float, int]]:
    """Cosine and place of each packed row that is alike at all, the most alike first, of equals the last one first."""
    if not len(rows):
        return iter(())
    table = np.frombuffer(rows, "<f4").reshape(-1, len(asked))
    places = likely(rough_cosines(asked, table), len(table))
    found = cosines(asked, table[places])
    places, found = places[found > 0], found[found > 0]
    order = np.lexsort((-places, -found))
    return zip(found[order].tolist(), places[order].tolist(), strict=True)


def fits(row: Observation, wanted: Filter, now: datetime) -> bool:
    """Return whether the row fits `wanted`. The gate is checked elsewhere."""
    return (
        query.status_now(row, now) in wanted.statuses
        and (not wanted.visibilities or row.visibility in wanted.visibilities)
        and all(_holds(row, label, getattr(wanted, name)) for name, label in query.FILTERED.items())
        and holds(row.metadata, wanted.metadata)
        and (wanted.after is None or row.created_at >= wanted.after)
        and (wanted.before is None or row.created_at < wanted.before)
        and row.importance >= wanted.min_importance
        and (wanted.quiet_since is None or row.quiet_since <= wanted.quiet_since)
        and (wanted.fading is None or consolidated(row, wanted.fading.at, wanted.fading.per_day) is not None)
    )


def _holds(row: Observation, label: str, asked: str | Sequence[str] | None) -> bool:
    """Return whether the row has one of the wanted values, if any are given."""
    if asked is None or asked == ():
        return True
    wanted = {query.key_of(label, each) for each in ((asked,) if isinstance(asked, str) else asked)}
    held = {query.key_of(label, each) for each in query.values_of(row, label)}
    return not wanted.isdisjoint(held) or (not held and label in query.EMPTY and "" in wanted)


def holds(metadata: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Return whether a row's metadata meets the conditions."""
    return all(_meets(metadata, name, asked) for name, asked in wanted.items())


def _meets(metadata: Mapping[str, Any], name: str, asked: Any) -> bool:
    if name == "$and":
        return all(holds(metadata, each) for each in asked)
    if name == "$or":
        return any(holds(metadata, each) for each in asked)
    if name == "$not":
        return not holds(metadata, asked)
    return query.passes(metadata.get(name, query.MISSING), query.tests_of(asked) or {"$eq": asked})
