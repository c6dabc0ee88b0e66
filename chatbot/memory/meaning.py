"""What is remembered, by its meaning: vectors for the rows that have none, and the rows that are like a text.

Meaning is an addition to words, so nothing here fails for others: where the embedder or the vectors cannot be used, a
notice says so once, and for a while words alone count. No lock is held while an embedder is called, and what may not
leave this machine unasked is not given to one that sends it away.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime

from chatbot.embedding import Embedder
from chatbot.errors import ChatbotError, ModelTimeout
from chatbot.memory.record import utc_now
from chatbot.memory.scoring import WEIGHT
from chatbot.messages import Usage
from stores.access import SENSITIVITIES, View
from stores.base import ObservationStore
from stores.errors import StoreError
from stores.lifecycle import AsyncResource
from stores.observation import Observation
from stores.query import Filter, Match
from stores.vectors import Vector

logger = logging.getLogger(__name__)

_QUERY_TIMEOUT_S = 5.0
_PAUSE_S = 60.0
"""For how long words alone count after a failure."""

Billing = Callable[[str, Usage, float], Awaitable[None]]
"""Called after each call, with the model, what it took, and the seconds: to be billed with the purpose `embed`."""


class Meaning(AsyncResource):
    """One embedder at the service of an identity's store. It is the owner's to close, after this.

    `notice` is told what does not work, in words for people.
    """

    def __init__(
        self,
        embedder: Embedder,
        store: ObservationStore,
        *,
        weight: float = WEIGHT,
        bill: Billing | None = None,
        notice: Callable[[str], None] = logger.warning,
        clock: Callable[[], datetime] = utc_now,
        timeout_s: float = _QUERY_TIMEOUT_S,
        pause_s: float = _PAUSE_S,
    ) -> None:
        self._embedder = embedder
        self._store = store
        self.weight = weight
        """How much it counts beside words, from 0 to 1."""
        self._bill = bill
        self._notice = notice
        self._clock = clock
        self._timeout_s = timeout_s
        self._pause_s = pause_s
        self._told = ""
        self._paused_until = 0.0
        self._under_way: asyncio.Task[None] | None = None

    async def check(self) -> None:
        """Raise `OtherEmbedder` where another model made the vectors, `UnsupportedOperation` where none are kept."""
        await self._store.missing_vectors(self._everything(), model=self._embedder.name, limit=0)

    async def embed_missing(self, *, most: int | None = None) -> int:
        """Embed rows that have no vector, those added last first, a batch at a time; how many were.

        Raises what the embedder and the store raise. What was embedded before stays.
        """
        done = 0
        while most is None or done < most:
            size = min(self._embedder.batch, self._embedder.batch if most is None else most - done)
            rows = await self._store.missing_vectors(self._everything(), model=self._embedder.name, limit=size)
            if not rows:
                break
            vectors = await self._embed([embedded_text(row) for row in rows])
            kept = await self._store.put_vectors(self._embedder.name, list(zip(rows, vectors, strict=True)))
            done += kept
            if not kept:
                break  # all were changed or erased meanwhile, or there is nowhere to keep them
        return done

    async def embed_again(self) -> int:
        """Throw all vectors away and make them with this embedder; how many. What `reindex --embed` does."""
        await self._store.forget_vectors()
        return await self.embed_missing()

    def begin(self) -> None:
        """Embed what is missing in the background, unless that is going on. Returns at once, never raises."""
        if self._under_way is None and not self._is_paused():
            self._under_way = asyncio.create_task(self._embed_quietly())
            self._under_way.add_done_callback(self._ended)

    async def nearest(
        self, view: View, texts: Sequence[str], wanted: Filter | None = None, *, limit: int = 200
    ) -> list[Match]:
        """The rows that are most like any of the texts, with the best cosine as score; one call for all texts.

        Empty where meaning cannot be used at present, which a notice has said.
        """
        vectors = await self.vectors(texts)
        return await self.nearest_to(view, [vector for vector in vectors if vector], wanted, limit=limit)

    async def vectors(self, texts: Sequence[str]) -> list[Vector | None]:
        """The vectors of the texts, as few calls as can be; None for a text without words.

        All None where meaning cannot be used at present, which a notice has said.
        """
        asked = list(dict.fromkeys(text for text in texts if text.strip()))
        made: dict[str, Vector] = {}
        try:
            for at in range(0, 0 if self._is_paused() else len(asked), self._embedder.batch):
                batch = asked[at : at + self._embedder.batch]
                made |= zip(batch, await self._embed_soon(batch), strict=True)
        except (ChatbotError, StoreError) as error:
            self._pause(error)
            made = {}
        return [made.get(text) for text in texts]

    async def nearest_to(
        self, view: View, vectors: Sequence[Vector], wanted: Filter | None = None, *, limit: int = 200
    ) -> list[Match]:
        """The rows that are most like any of the vectors, with the best cosine as score."""
        best: dict[str, Match] = {}
        try:
            for vector in vectors:
                found = await self._store.nearest(
                    view, vector, wanted or Filter(), model=self._embedder.name, limit=limit
                )
                for match in found:
                    if match.id not in best or best[match.id].score < match.score:
                        best[match.id] = match
        except (ChatbotError, StoreError) as error:
            self._pause(error)
            return []
        return sorted(best.values(), key=lambda match: -match.score)[:limit]

    async def similar(
        self, view: View, texts: Sequence[str], wanted: Filter | None = None, *, limit: int = 200
    ) -> Mapping[str, float]:
        """`nearest`, as the cosine of each id."""
        return {match.id: match.score for match in await self.nearest(view, texts, wanted, limit=limit)}

    async def aclose(self) -> None:
        """Stop what goes on in the background; what was embedded stays."""
        if self._under_way is not None:
            self._under_way.cancel()
            await asyncio.wait([self._under_way])

    async def _embed_quietly(self) -> None:
        try:
            await self.embed_missing()
        except (ChatbotError, StoreError) as error:
            self._pause(error)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._under_way = None
        if not task.cancelled():
            task.result()

    async def _embed_soon(self, texts: Sequence[str]) -> list[Vector]:
        """Within the time that an answer may be held up."""
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._embed(texts)
        except TimeoutError as error:
            if isinstance(error, ChatbotError):
                raise
            raise ModelTimeout(f"{self._embedder.name}: nothing came for {self._timeout_s:g} s") from error

    async def _embed(self, texts: Sequence[str]) -> list[Vector]:
        begun = time.monotonic()
        answer = await self._embedder.embed(texts)
        if self._bill is not None:
            await self._bill(self._embedder.name, answer.usage, time.monotonic() - begun)
        return answer.vectors

    def _everything(self) -> View:
        asked = frozenset({"public"} if self._embedder.sends_away else SENSITIVITIES)
        return View("full", self._clock(), asked, None)  # type: ignore[arg-type]

    def _pause(self, error: ChatbotError | StoreError) -> None:
        self._paused_until = time.monotonic() + self._pause_s
        if str(error) != self._told:
            self._told = str(error)
            self._notice(f"memory is searched by words alone: {error}")

    def _is_paused(self) -> bool:
        return time.monotonic() < self._paused_until


def embedded_text(row: Observation) -> str:
    """What of a row is embedded: what it says, what a person said before what the bot replied."""
    parts = (row.title, row.subtitle, row.narrative, *row.facts, row.user_text, row.assistant_text)
    return "\n".join(dict.fromkeys(filter(None, parts)))
