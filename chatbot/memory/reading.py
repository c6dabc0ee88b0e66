"""Operations that search and read memories."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from itertools import accumulate
from typing import TYPE_CHECKING, Any, get_args

from msgspec import Struct, field
from msgspec.structs import asdict, replace

from chatbot.memory.inputs import list_of, takes
from chatbot.memory.people import other_names
from chatbot.memory.scope import PUBLIC, ScopedOperations, Sensitivities
from chatbot.stores import errors, query, records
from chatbot.stores.access import SENSITIVITIES
from chatbot.stores.observation import Observation
from chatbot.stores.row_events import Event

if TYPE_CHECKING:
    from chatbot.memory.recall import Recollection

logger = logging.getLogger(__name__)

DEFAULT_LIMIT = 10
_NO_FILTER = "memories cannot be filtered by"
_ALIKE = 0.2
"""Minimum cosine of a search result without a lexical match."""
_CANDIDATES = 5
"""Number of candidates for each result."""
_LOOKED_AT = 40
"""Number of best rows of a search that are read to see which only ask, and which hold its only word."""


class Hit(Struct, frozen=True):
    """A search result with its score from 0 to 1; 0 if it was not ranked."""

    observation: Observation
    score: float
    parts: Mapping[str, float] = field(default_factory=dict)

    def brief(self) -> dict[str, Any]:
        """Return what is needed to decide whether to read the whole row."""
        return self.observation.brief() | {"score": round(self.score, 4)}


class ReadOptions(query.Filter, frozen=True, kw_only=True):
    """Options of a read: a filter, and the sensitivities asked for."""

    sensitivities: Sensitivities = PUBLIC


class TimedFilter(ReadOptions, frozen=True, kw_only=True):
    """Filter of rows, and the time as of which to search. Abstract."""

    as_of: datetime | None = None
    """Search memories that were true at that time."""
    known_at: datetime | None = None
    """Search memories that were known at that time."""


class Ranking(TimedFilter, frozen=True, kw_only=True):
    """Options of a ranked search. Abstract."""

    limit: int = DEFAULT_LIMIT
    """Maximum number of hits; 0 means 10."""
    offset: int = 0
    max_tokens: int | None = None
    """Maximum tokens of the list; at least one hit is returned."""
    count_use: bool = True
    """True to count the hits as used."""


class Batch(Ranking, frozen=True):
    """Several questions, with a filter."""

    texts: Sequence[str]


class Search(Ranking, frozen=True):
    """A question, with a filter."""

    text: str = ""


class RecallOptions(TimedFilter, frozen=True, kw_only=True):
    """Options of a recall. Abstract."""

    limit: int = 5
    profile: str = "inject"
    exclude: Collection[str] = ()
    """Ids of rows that are not recalled."""
    need: float | None = None
    """The score of the head `needs_memory` for the question; None if nothing judged it."""
    statements: bool = False
    """True to leave out mere questions and rows with much less evidence than the best, and to replace the weakest rows
    by later statements about the same things as the best ones."""


class Recall(RecallOptions, frozen=True):
    """Recent texts, the last of which is the question, with a filter."""

    texts: str | Sequence[str]


class Listing(ReadOptions, frozen=True, kw_only=True):
    """A page of rows by time."""

    order: query.Order = "updated"
    ascending: bool = False
    limit: int = 20
    cursor: str | None = None
    """`after` of the previous page."""


class TimelineOptions(query.RowFilter, frozen=True, kw_only=True):
    """Options of a timeline: the number of rows `before` a row, and `after` it. Abstract."""

    before: int = 5
    after: int = 5
    sensitivities: Sensitivities = PUBLIC


class Timeline(TimelineOptions, frozen=True):
    """The rows around the row `anchor`."""

    anchor: str


class MemoryReads(ScopedOperations):
    """Operations that return only what the caller may see; the gate is applied before limits, counts and uses.

    Rows that are `private` or `secret` are returned only if `sensitivities` name them, `unknown` ones never.
    """

    @takes(Search, _NO_FILTER)
    async def search(self, asked: Search) -> list[Hit]:
        """Return the memories about `text`, best first; without a text, or by words with stop words only, the newest.

        The other parameters are those of `Search` and of `Filter`. Hits count as used unless `count_use` is false or
        the search is as of a time.
        """
        given = asdict(asked)
        [hits] = await self._search(Batch([given.pop("text")], **given))
        return hits

    @takes(Batch, _NO_FILTER)
    async def search_batch(self, asked: Batch) -> list[list[Hit]]:
        """Return the hits of several questions in one call of the embedder; a row found twice counts as used once."""
        return await self._search(asked)

    async def _search(self, asked: Batch) -> list[list[Hit]]:
        from chatbot.memory import meaning, recall
        from chatbot.stores.text.analysis import terms

        scope = self.scope
        view, texts = scope.view(asked.sensitivities), list_of(asked.texts, "the question")
        limit, offset = query.check_limit(asked.limit) or DEFAULT_LIMIT, query.check_limit(asked.offset, "offset")
        filtered, past = await recall.as_of(scope, view, await self._filter(asked), asked)
        vectors = await meaning.vectors_of(scope, [[text] for text in texts])
        answers = []
        for text, vector in zip(texts, vectors, strict=True):
            found = await recall.rows_about(
                scope,
                view,
                [text] if text else [],
                filtered,
                profile=scope.environment.options.profiles["search"],
                limit=query.EVERY if asked.known_at else (offset + limit) * _CANDIDATES,
                past=past,
                reach=query.EVERY if asked.known_at else offset + limit,
                vectors=vector,
            )
            # without rows that are only next to a matching one
            answering = [each for each in found if each.match.score > 0 or each.dated or (each.meaning or 0) >= _ALIKE]
            best = {each.match.id: each for each in answering or found}
            first = await recall.rows_then(scope, view, list(best), past, asked.known_at, part=slice(_LOOKED_AT))
            asking = await recall.merely_asking(scope, first) if meaning.is_only_questions(text) else set()
            words = set(terms(text))  # rows with the only one come first, as encoders know few names
            named = recall.holders(first, words) if len(words) == 1 else set()
            scores = {each: row.score / (2 if each in asking else 1) for each, row in best.items()}
            scores |= {each: (1 + scores[each]) / 2 for each in named}
            order = sorted(scores, key=lambda each: -scores[each])
            part = slice(offset, offset + limit)
            rows = await recall.rows_then(scope, view, order, past | first, asked.known_at, part=part)
            hits = [Hit(row, scores[each], best[each].parts) for each, row in rows.items()]
            answers.append(_up_to_tokens(hits, asked.max_tokens))
        found_ids = list(dict.fromkeys(hit.observation.id for hits in answers for hit in hits))
        scope.retrieved("search", found_ids)
        if asked.count_use and not (asked.as_of or asked.known_at):
            await self.note_use(found_ids)
        return answers

    @takes(Recall, _NO_FILTER)
    async def recall(self, asked: Recall) -> Recollection:
        """Return memories for a prompt: about the last of `texts` and, with less weight, about those before it.

        The other parameters are those of `Recall` and of `Filter`. The result also has all considered rows with score
        details and outcome. With `statements`, later ones about the same things follow the best rows. Rows count as
        used only by `note_use`. Raises `InvalidValue` for an unknown profile.
        """
        from chatbot.memory.recall import recollect

        scope = self.scope
        if asked.profile not in (known := scope.environment.options.profiles):
            raise errors.unknown_choice("profile", asked.profile, known)
        recollection = await recollect(scope, asked, await self._filter(asked))
        scope.retrieved("recall", [each.id for each in recollection.hits])
        return recollection

    async def nearest(
        self, texts: Sequence[tuple[str, query.Filter]], *, limit: int = 10, sensitivities: Sensitivities = PUBLIC
    ) -> list[list[Hit]]:
        """Return for each text the rows whose meaning is nearest, with the cosine as score; words do not count.

        Each text has its own filter. Finds nothing without an embedder, and no rows without a vector; counts no uses.
        """
        scope = self.scope
        view, limit = scope.view(sensitivities), query.check_limit(limit)
        if scope.meaning is None:
            return [[] for _ in texts]
        questions = await scope.meaning.questions_of([text for text, _ in texts], scope.caller)
        answers = []
        for vectors, (_, wanted) in zip(questions, texts, strict=True):
            filtered = await self._filter(wanted)
            found = await scope.meaning.nearest_to(view, vectors, filtered, limit=limit)
            rows = await scope.store.get(view, [*found])
            answers.append([Hit(row, found[row.id]) for row in rows])
        return answers

    async def get(
        self, ids: Sequence[str], *, sensitivities: Sensitivities = PUBLIC, count_use: bool = True, current: bool = True
    ) -> list[Observation]:
        """Return active observations, or those of any status, whole, in the given order, without missing ones."""
        scope = self.scope
        rows = await scope.store.get(scope.view(sensitivities), list_of(ids, "ids"), current=current)
        scope.retrieved("get", [row.id for row in rows])
        if count_use:
            await self.note_use([row.id for row in rows])
        return rows

    async def row(self, observation_id: str, *, sensitivities: Sensitivities = PUBLIC) -> Observation:
        """Return an observation in full, whatever its status; not counted as use. Raises `UnknownObservation`."""
        rows = await self.scope.store.get(self.scope.view(sensitivities), [observation_id], current=False)
        if not rows:
            raise errors.UnknownObservation.of([observation_id])
        return rows[0]

    @takes(Listing, _NO_FILTER)
    async def list_observations(self, asked: Listing) -> query.Page:
        """Return a page of observations by time; the parameters are those of `Listing` and of `Filter`."""
        scope = self.scope
        if asked.order not in (known := get_args(query.Order)):
            raise errors.unknown_choice("order", asked.order, known)
        return await scope.store.find(
            scope.view(asked.sensitivities),
            await self._filter(asked),
            order=asked.order,
            ascending=asked.ascending,
            limit=query.check_limit(asked.limit),
            after=asked.cursor,
        )

    @takes(Timeline, _NO_FILTER)
    async def timeline(self, asked: Timeline) -> list[Observation]:
        """Return an observation that is neither forgotten nor expired and the memories around it, oldest first.

        The parameters are those of `Timeline` and of `RowFilter`. Raises `UnknownObservation` if there is none.
        """
        scope, anchor = self.scope, asked.anchor
        view, wanted = scope.view(asked.sensitivities), await self._filter(asked)
        found = await scope.store.get(view, [anchor], current=False)
        if not found or query.status_now(found[0], view.now) in {"deleted", "expired"}:
            raise errors.UnknownObservation.of([anchor])
        older = await scope.rows(wanted, view=view, after=anchor, limit=query.check_limit(asked.before))
        newer = await scope.rows(wanted, view=view, after=anchor, limit=query.check_limit(asked.after), ascending=True)
        return [*older[::-1], *found, *newer]

    async def history(self, observation_id: str, *, sensitivities: Sensitivities = PUBLIC) -> list[query.Version]:
        """Return the versions of an observation and of those it replaced or was replaced by, oldest first.

        `changes` of a replaced one have both texts. Raises `UnknownObservation` if there is no such observation.
        """
        scope = self.scope
        if not (line := await scope.store.history(scope.view(sensitivities), observation_id)):
            raise errors.UnknownObservation.of([observation_id])
        texts = {version.observation.id: version.observation.text() for version in line}
        return [_with_texts(version, texts) for version in line]

    async def resolve(self, prefix: str, *, sensitivities: Sensitivities = PUBLIC) -> str:
        """Return the one id that begins with `prefix`. Raises `UnknownObservation` for none or several."""
        scope = self.scope
        folded = records.check_text(prefix, "the id").lower()
        found = await scope.store.resolve(scope.view(sensitivities), folded) if prefix else []
        if len(found) == 1 or prefix in found:
            return prefix if prefix in found else found[0]
        if found:
            raise errors.UnknownObservation(f"several memories begin with {prefix!r}: {', '.join(found)}")
        raise errors.UnknownObservation.of([prefix])

    async def stats(self, *, sensitivities: Sensitivities = PUBLIC) -> query.Stats:
        """Return the number of memories by status, type and visibility, and their size on disk."""
        return await self.scope.store.stats(self.scope.view(sensitivities))

    async def vector_stats(self, *, sensitivities: Sensitivities = PUBLIC) -> query.VectorStats:
        """Return the vectors' model, and how many rows have one. Raises `UnsupportedOperation` without vectors."""
        return await self.scope.store.vector_stats(self.scope.view(sensitivities))

    async def reindex(self, progress: query.Progress | None = None) -> int:
        """Rebuild the store's caches; return how many observations the caller may see."""
        scope = self.scope
        scope.caller.check("curate")
        await scope.store.reindex(progress)
        return sum((await scope.store.stats(scope.write_view(SENSITIVITIES))).by_status.values())

    async def embed_memories(self, progress: query.Progress | None = None, *, anew: bool = False) -> int:
        """Make missing vectors, or all `anew`, in all namespaces; return how many. Raises `UnsupportedOperation`."""
        scope = self.scope
        scope.caller.check("curate")
        if scope.meaning is None:
            raise errors.UnsupportedOperation("no embedder: set [embedding] model, or install the extra `embeddings`")
        return await scope.meaning.embed_all(progress, anew=anew)

    @takes(ReadOptions, _NO_FILTER)
    async def every(self, asked: ReadOptions) -> list[Observation]:
        """Return all matching rows, newest first, without a limit; the parameters are those of `Filter`."""
        return await self.scope.rows(await self._filter(asked), view=self.scope.view(asked.sensitivities))

    async def _filter(self, asked: query.RowFilter) -> query.Filter:
        """Return the plain `Filter`, with all names of the wanted people, and all known paths of the wanted files."""
        if isinstance(asked, TimedFilter) and asked.statuses != ("active",):
            raise errors.InvalidValue("only active memories are searched: `every` also returns those of other statuses")
        kind = query.Filter if isinstance(asked, query.Filter) else query.RowFilter
        wanted = query.Filter(**{name: getattr(asked, name) for name in kind.__struct_fields__})
        if wanted.people:
            sensitivities = asked.sensitivities if isinstance(asked, ReadOptions | TimelineOptions) else PUBLIC
            wanted = replace(wanted, people=await other_names(self.scope, wanted.people, sensitivities))
        if wanted.files:
            view = self.scope.view(SENSITIVITIES)
            known = [each.value for each in await self.scope.store.facets(view, "files", limit=query.EVERY)]
            ends = tuple(f"/{file.lower().lstrip('/')}" for file in wanted.files)
            found = (each for each in known if f"/{each.lower()}".endswith(ends))
            wanted = replace(wanted, files=(*wanted.files, *found))
        return wanted

    async def note_use(self, ids: Sequence[str]) -> None:
        """Count uses if possible: reading must work on a full or read-only disk."""
        if not ids:
            return
        scope = self.scope
        try:
            use = Event(kind="use", at=scope.clock(), ids=tuple(ids))
            await scope.store.commit(scope.write_view().asking_all(), [use])
        except errors.ReadOnlyFolder:
            logger.info("%d uses were not counted: the memory is read-only", len(ids))
        except errors.StoreError as error:
            logger.warning("%d uses were not counted: %s", len(ids), error)


def _with_texts(version: query.Version, texts: Mapping[str, str]) -> query.Version:
    """Return the version with its text and its successor's, as a change of the event that replaced it."""
    own = version.observation.text()
    steps = [
        (event, {**changed, "text": (own, texts[event.by])})
        if event.kind == "supersede" and event.by is not None and event.by in texts
        else (event, changed)
        for event, changed in version.steps
    ]
    return replace(version, steps=tuple(steps))


def _up_to_tokens(hits: list[Hit], max_tokens: int | None) -> list[Hit]:
    if max_tokens is None:
        return hits
    most = query.check_limit(max_tokens, "max_tokens")
    sums = accumulate(hit.observation.token_count for hit in hits)
    return hits[: max(1, sum(tokens <= most for tokens in sums))]
