"""Operations that ask what is remembered."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from chatbot.memory.people import other_names
from chatbot.memory.scope import PUBLIC, Scope, Scoped
from chatbot.memory.scoring import search_score
from stores.access import Sensitivity
from stores.analysis import terms
from stores.errors import InvalidValue, UnknownObservation, did_you_mean
from stores.events import Event
from stores.observation import Observation
from stores.query import Filter, Order, Page, Progress, Stats, Version, check_limit
from stores.records import format_time

DEFAULT_LIMIT = 10
_CANDIDATES = 5
"""How many times the limit are looked at before the best are chosen."""


@dataclass(frozen=True, slots=True)
class Hit:
    """Something found, with its score from 0 to 1; 0 where it was not ranked."""

    observation: Observation
    score: float

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
        max_tokens: int | None = None,
        ask: Collection[Sensitivity] = PUBLIC,
        count_use: bool = True,
        **wanted: Any,
    ) -> list[Hit]:
        """What is remembered about `text`, best first; without a text, or with stop words only, what is newest.

        `wanted` are fields of `Filter`. A limit of 0 means 10. `max_tokens` ends the list once it is exceeded, yet
        there is always one hit if there is any. What is returned counts as used unless `count_use` is false.
        """
        scope = self._scope()
        view, limit = scope.view(ask), check_limit(limit) or DEFAULT_LIMIT
        filter_ = await self._filter(wanted)
        words = terms(text)
        found: Iterable[tuple[str, float]]
        if words:
            matches = await scope.store.match(view, words, filter_, limit=limit * _CANDIDATES)
            found = [
                (match.id, search_score(match.score, updated_at=match.updated_at, mention_count=match.mention_count,
                                        now=view.now))
                for match in matches
            ]  # fmt: skip
        else:
            page = await scope.store.find(view, filter_, limit=limit * _CANDIDATES)
            found = [
                (row.id, search_score(None, updated_at=row.updated_at, mention_count=row.mention_count, now=view.now))
                for row in page.rows
            ]
        best = dict(sorted(found, key=lambda each: -each[1])[:limit])
        rows = await scope.store.get(view, list(best))
        hits = _within([Hit(row, best[row.id]) for row in rows], max_tokens)
        if count_use:
            await self._note_use(scope, [hit.observation for hit in hits])
        return hits

    async def get(
        self, ids: Sequence[str], *, ask: Collection[Sensitivity] = PUBLIC, count_use: bool = True
    ) -> list[Observation]:
        """Observations in full, in the order asked for; what is missing, forgotten or hidden is left out."""
        scope = self._scope()
        rows = await scope.store.get(scope.view(ask), ids)
        if count_use:
            await self._note_use(scope, rows)
        return rows

    async def list_observations(
        self,
        *,
        order: Order = "updated",
        ascending: bool = False,
        limit: int = 20,
        page_after: str | None = None,
        ask: Collection[Sensitivity] = PUBLIC,
        **wanted: Any,
    ) -> Page:
        """A page of observations by time; `page_after` is the `after` of the page before.

        `wanted` are fields of `Filter`, its times `after` and `before` among them.
        """
        scope = self._scope()
        return await scope.store.find(
            scope.view(ask), await self._filter(wanted), order=order, ascending=ascending, limit=limit, after=page_after
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
        raise UnknownObservation(f"there is no observation {prefix!r}")

    async def stats(self, *, ask: Collection[Sensitivity] = PUBLIC) -> Stats:
        """How much there is, by status, type and visibility, and what it takes on the disk."""
        scope = self._scope()
        return await scope.store.stats(scope.view(ask))

    async def reindex(self, progress: Progress | None = None) -> int:
        """Build the store's caches again from what is kept; how many observations there are."""
        return await self._scope().store.reindex(progress)

    async def _filter(self, wanted: dict[str, Any]) -> Filter:
        if people := wanted.get("people"):
            wanted = wanted | {"people": await other_names(self._scope(), people)}
        return _filter(wanted)

    async def _note_use(self, scope: Scope, rows: Iterable[Observation]) -> None:
        if ids := tuple(row.id for row in rows):
            await scope.commit(Event(kind="use", at=scope.clock(), ids=ids))


def _filter(wanted: Mapping[str, Any]) -> Filter:
    given: dict[str, Any] = {}
    for name, value in wanted.items():
        if name not in _FILTERED:
            raise InvalidValue(f"observations cannot be filtered by {name!r}{did_you_mean(name, _FILTERED)}")
        is_one = name in _SEVERAL and isinstance(value, str)
        given[name] = (value,) if is_one else tuple(value) if isinstance(value, list) else value
    return Filter(**given)


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
_SEVERAL = frozenset({"types", "tags", "concepts", "people", "files", "visibilities", "statuses"})
