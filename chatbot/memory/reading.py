"""Operations that ask what is remembered."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import TYPE_CHECKING, Any

from chatbot.memory.people import other_names
from chatbot.memory.scope import PUBLIC, Scope, Scoped
from chatbot.memory.scoring import Scored
from stores.access import VISIBILITIES, Sensitivity, View
from stores.errors import InvalidValue, StoreError, UnknownObservation, UnsupportedOperation, did_you_mean
from stores.events import Event
from stores.observation import STATUSES, TYPES, Observation, is_observation_id
from stores.query import MOST_AT_ONCE, Filter, Order, Page, Progress, Stats, VectorStats, Version, check_limit
from stores.records import check_time, format_time

if TYPE_CHECKING:
    from chatbot.memory.recall import Recollection

logger = logging.getLogger(__name__)

DEFAULT_LIMIT = 10
_ALIKE = 0.3
"""The cosine from which on a row that holds none of the words is listed for its meaning."""
_CANDIDATES = 5
"""How many times the limit are looked at before the best are chosen."""


@dataclass(frozen=True, slots=True)
class Hit:
    """Something found, with its score from 0 to 1; 0 where it was not ranked."""

    observation: Observation
    score: float
    parts: Mapping[str, float] = field(default_factory=dict)
    """What the score is made of."""

    def index(self) -> dict[str, Any]:
        """Just enough to decide whether to ask for all of it."""
        row = self.observation
        return {
            "id": row.id,
            "type": row.type,
            "title": row.title or row.narrative[:80] or row.user_text[:80],
            "score": round(self.score, 4),
            "created_at": format_time(row.created_at),
            "token_count": row.token_count,
        }


class Reading(Scoped):
    """Every answer holds only what the caller may see; the gate is passed before limits, counts and uses.

    `ask` names the sensitivities wanted: `private` and `secret` rows are returned to who asks for them, `unknown` ones
    to nobody.
    """

    __slots__ = ()

    async def search(
        self,
        text: str = "",
        *,
        limit: int = 0,
        offset: int = 0,
        max_tokens: int | None = None,
        ask: Collection[Sensitivity] = PUBLIC,
        count_use: bool = True,
        **wanted: Any,
    ) -> list[Hit]:
        """What is remembered about `text`, best first; without a text, or with stop words only, what is newest.

        `wanted` are fields of `Filter`. A limit of 0 means 10; `offset` passes over the best. `max_tokens` ends the
        list once it is exceeded, yet there is always one hit if there is any. What is returned counts as used unless
        `count_use` is false.
        """
        [hits] = await self.search_batch(
            [text], limit=limit, offset=offset, max_tokens=max_tokens, ask=ask, count_use=count_use, **wanted
        )
        return hits

    async def search_batch(
        self,
        texts: Sequence[str],
        *,
        limit: int = 0,
        offset: int = 0,
        max_tokens: int | None = None,
        ask: Collection[Sensitivity] = PUBLIC,
        count_use: bool = True,
        **wanted: Any,
    ) -> list[list[Hit]]:
        """The answers to several questions, in their order and each as `search` gives it.

        They take one call of the embedder, and what is returned, however often, counts as used once.
        """
        from chatbot.memory.recall import rows_about

        scope = self._scope()
        view, limit, offset = scope.view(ask), check_limit(limit) or DEFAULT_LIMIT, check_limit(offset)
        filtered = await self._filter(wanted)
        vectors = await scope.meaning.vectors(texts) if scope.meaning else [None] * len(texts)
        answers = []
        for text, vector in zip(texts, vectors, strict=True):
            found = await rows_about(
                scope,
                view,
                [text] if text else [],
                filtered,
                profile=scope.profiles["search"],
                limit=(offset + limit) * _CANDIDATES,
                vectors=[vector] if vector else [],
            )
            answers.append(_within(await _hits(scope, view, found, slice(offset, offset + limit)), max_tokens))
        found_ids = list(dict.fromkeys(hit.observation.id for hits in answers for hit in hits))
        scope.retrieved("search", found_ids)
        if count_use:
            await self.note_use(found_ids)
        return answers

    async def recall(
        self,
        texts: str | Sequence[str],
        *,
        limit: int = 5,
        profile: str = "inject",
        exclude: Collection[str] = (),
        ask: Collection[Sensitivity] = PUBLIC,
        **wanted: Any,
    ) -> Recollection:
        """What is remembered about the last of `texts` and, a little, about those before it: for a prompt.

        Rows in `exclude` are not recalled. Everything that was looked at is told, with the parts of its score and what
        became of it. Counts as no use: `note_use` does. Raises `InvalidValue` for an unknown profile.
        """
        from chatbot.memory.recall import RECALLED, Recalled, Recollection, judged, rows_about

        scope = self._scope()
        if profile not in scope.profiles:
            raise InvalidValue(f"no profile of scores is called {profile!r}{did_you_mean(profile, scope.profiles)}")
        weighed = scope.profiles[profile]
        view, limit = scope.view(ask), check_limit(limit)
        texts = [texts] if isinstance(texts, str) else texts
        wanted_rows = await self._filter(wanted)
        found = await rows_about(scope, view, texts, wanted_rows, profile=weighed, limit=limit + len(exclude))
        verdicts = judged(found, weighed, limit, frozenset(exclude))
        ids = [row.match.id for row, verdict in verdicts if verdict == RECALLED]
        rows = {row.id: row for row in await scope.store.get(view, ids)}
        considered = tuple(Recalled(row, rows.get(row.match.id), verdict) for row, verdict in verdicts)
        hits = tuple(each for each in considered if each.verdict == RECALLED and each.observation)
        scope.retrieved("recall", [each.id for each in hits])
        return Recollection(hits, considered)

    async def like(
        self, texts: Sequence[tuple[str, Mapping[str, Any]]], *, limit: int = 10, ask: Collection[Sensitivity] = PUBLIC
    ) -> list[list[Hit]]:
        """For each text, the rows whose meaning is nearest, with the cosine as score; words do not count.

        With each text come the fields of `Filter` that rows must fit. Nothing without an embedder, and no row that has
        not been embedded yet. Counts as no use.
        """
        scope = self._scope()
        if scope.meaning is None:
            return [[] for _ in texts]
        view, limit = scope.view(ask), check_limit(limit)
        answers = []
        for vector, (_, wanted) in zip(await scope.meaning.vectors([text for text, _ in texts]), texts, strict=True):
            filtered = await self._filter(dict(wanted))
            found = await scope.meaning.nearest_to(view, [vector] if vector else [], filtered, limit=limit)
            rows = {row.id: row for row in await scope.store.get(view, [match.id for match in found])}
            answers.append([Hit(rows[match.id], match.score) for match in found if match.id in rows])
        return answers

    async def get(
        self, ids: Sequence[str], *, ask: Collection[Sensitivity] = PUBLIC, count_use: bool = True
    ) -> list[Observation]:
        """Observations in full, in the order asked for; what is missing, forgotten or hidden is left out."""
        scope = self._scope()
        rows = await scope.store.get(scope.view(ask), ids)
        scope.retrieved("get", [row.id for row in rows])
        if count_use:
            await self.note_use([row.id for row in rows])
        return rows

    async def list_observations(
        self,
        *,
        order: Order = "updated",
        ascending: bool = False,
        limit: int = 20,
        cursor: str | None = None,
        ask: Collection[Sensitivity] = PUBLIC,
        **wanted: Any,
    ) -> Page:
        """A page of observations by time; `cursor` is `after` of the page before. `wanted` are fields of `Filter`."""
        scope = self._scope()
        return await scope.store.find(
            scope.view(ask), await self._filter(wanted), order=order, ascending=ascending, limit=limit, after=cursor
        )

    async def timeline(
        self, anchor: str, *, before: int = 5, after: int = 5, ask: Collection[Sensitivity] = PUBLIC, **wanted: Any
    ) -> list[Observation]:
        """What was remembered just before and after an observation, which stands among them, oldest first.

        Raises `UnknownObservation` where there is no such observation.
        """
        scope = self._scope()
        view, filter_ = scope.view(ask), await self._filter(wanted)
        found = await scope.store.get(view, [anchor])
        if not found:
            raise UnknownObservation(f"there is no observation {anchor}")
        older = await scope.store.find(view, filter_, order="created", after=anchor, limit=before)
        newer = await scope.store.find(view, filter_, order="created", after=anchor, limit=after, ascending=True)
        return [*older.rows[::-1], *found, *newer.rows]

    async def history(self, observation_id: str, *, ask: Collection[Sensitivity] = PUBLIC) -> list[Version]:
        """What the observation took the place of, what took its, and what happened to each, oldest first.

        Raises `UnknownObservation` where there is no such observation.
        """
        scope = self._scope()
        line = await scope.store.history(scope.view(ask), observation_id)
        if not line:
            raise UnknownObservation(f"there is no observation {observation_id}")
        return line

    async def resolve(self, prefix: str, *, ask: Collection[Sensitivity] = PUBLIC) -> str:
        """The one id that begins with `prefix`. Raises `UnknownObservation` where there is none, or more than one."""
        scope = self._scope()
        found = await scope.store.resolve(scope.view(ask), prefix.lower()) if prefix else []
        if len(found) == 1 or prefix in found:
            return prefix if prefix in found else found[0]
        if found:
            raise UnknownObservation(f"several observations begin with {prefix!r}: {', '.join(found)}")
        raise UnknownObservation(f"there is no observation {prefix if is_observation_id(prefix) else repr(prefix)}")

    async def stats(self, *, ask: Collection[Sensitivity] = PUBLIC) -> Stats:
        """How much there is, by status, type and visibility, and what it takes on the disk."""
        scope = self._scope()
        return await scope.store.stats(scope.view(ask))

    async def vector_stats(self, *, ask: Collection[Sensitivity] = PUBLIC) -> VectorStats:
        """Which model made the vectors, and how many rows have one. Raises `UnsupportedOperation` without vectors."""
        scope = self._scope()
        return await scope.store.vector_stats(scope.view(ask))

    async def reindex(self, progress: Progress | None = None, *, embed: bool = False) -> int:
        """Build the store's caches again from what is kept; how many observations there are.

        `embed` also makes all vectors anew, with the embedder at hand; raises `UnsupportedOperation` without one.
        """
        scope = self._scope()
        rows = await scope.store.reindex(progress)
        if embed and scope.meaning is None:
            raise UnsupportedOperation("there is no embedder: set model in [embedding]")
        if embed and scope.meaning is not None:
            await scope.meaning.embed_again()
        return rows

    async def every(self, *, ask: Collection[Sensitivity] = PUBLIC, **wanted: Any) -> list[Observation]:
        """All that fits, the one made last first, however many there are; `wanted` are fields of `Filter`."""
        rows: list[Observation] = []
        cursor: str | None = None
        while True:
            page = await self.list_observations(order="created", limit=MOST_AT_ONCE, cursor=cursor, ask=ask, **wanted)
            rows += page.rows
            cursor = page.after
            if cursor is None:
                return rows

    async def _filter(self, wanted: dict[str, Any]) -> Filter:
        if people := wanted.get("people"):
            wanted = wanted | {"people": await other_names(self._scope(), _several("people", people))}
        return _filter(wanted)

    async def note_use(self, ids: Sequence[str]) -> None:
        """Count uses, where that is possible: a disk that is full or read-only keeps nobody from reading."""
        if not ids:
            return
        scope = self._scope()
        try:
            await scope.store.commit(scope.view().asking_all(), [Event(kind="use", at=scope.clock(), ids=tuple(ids))])
        except StoreError as error:
            logger.warning("%d uses were not counted: %s", len(ids), error)


def _filter(wanted: Mapping[str, Any]) -> Filter:
    given: dict[str, Any] = {}
    for name, value in wanted.items():
        if name not in _FILTERED:
            raise InvalidValue(f"observations cannot be filtered by {name!r}{did_you_mean(name, _FILTERED)}")
        given[name] = _several(name, value) if name in _SEVERAL else _one(name, value)
        for unknown in [each for each in given[name] if each not in _WORDS[name]] if name in _WORDS else ():
            raise InvalidValue(f"{name} has {unknown!r:.80}{did_you_mean(unknown, _WORDS[name])}")
    return Filter(**given)


def _several(name: str, value: Any) -> tuple[str, ...]:
    values = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, Iterable) else (value,)
    for each in values:
        if not isinstance(each, str):
            raise InvalidValue(f"{name} is {value!r:.80}: it must be one text, or a list of texts")
    return values


def _one(name: str, value: object) -> object:
    wanted = _KINDS.get(name, str)
    if not isinstance(value, wanted) and not (value is None and name not in {"metadata", "min_importance"}):
        raise InvalidValue(f"{name} is {value!r:.80}: observations cannot be filtered by that")
    return check_time(value) if isinstance(value, datetime) else value


async def _hits(scope: Scope, view: View, found: Sequence[Scored], part: slice) -> list[Hit]:
    """That part of what was found, best first; what only stands beside an answer is for prompts."""
    holding = [each for each in found if each.match.score > 0 or (each.meaning or 0.0) >= _ALIKE]
    best = {each.match.id: each for each in (holding or found)[part]}
    return [Hit(row, best[row.id].score, best[row.id].parts) for row in await scope.store.get(view, list(best))]


def _within(hits: list[Hit], max_tokens: int | None) -> list[Hit]:
    if max_tokens is None:
        return hits
    kept: list[Hit] = []
    spent = 0
    for hit in hits:
        spent += hit.observation.token_count
        if kept and spent > max_tokens:
            break
        kept.append(hit)
    return kept


_FILTERED = frozenset(found.name for found in fields(Filter))
_KINDS: dict[str, Any] = {
    "metadata": Mapping,
    "after": datetime,
    "before": datetime,
    "min_importance": int | float,
}
_WORDS: Mapping[str, Sequence[str]] = {"types": TYPES, "statuses": STATUSES, "visibilities": VISIBILITIES}
_SEVERAL = frozenset({"types", "tags", "concepts", "people", "files", "derived_from", "visibilities", "statuses"})
