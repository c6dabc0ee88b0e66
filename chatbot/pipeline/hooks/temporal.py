"""Choosing among what was recalled by how long ago it was."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta

from chatbot.memory import SessionHandle
from chatbot.memory.recall import Recalled
from chatbot.pipeline.hook import Hook, HookContext
from chatbot.pipeline.scales import MARGIN, SCALES, Candidate, Scale, allocated, scale_of

Places = Annotated[tuple[int, ...], Meta(min_length=4, max_length=4)]


class Temporal(Hook):
    """Gives each scale of time its places among what is injected, as a tie-break: `memory.temporal`."""

    topics = ()
    priority = 110

    def __init__(
        self,
        context: HookContext,
        *,
        places: Places = (1, 2, 1, 1),
        margin: Annotated[float, Meta(ge=0, le=1)] = MARGIN,
    ) -> None:
        super().__init__(context)
        self._places = dict(zip(SCALES, places, strict=True))
        self._margin = margin
        context.capabilities.provide("memory.temporal", self.choose)

    async def handle(self, event: Any) -> None:
        """Nothing: it is asked, not told."""

    async def choose(
        self, session: SessionHandle, hits: Sequence[Recalled], most: int, now: datetime
    ) -> Sequence[Recalled]:
        """At most `most` of the hits, which are given best first."""
        if len(hits) <= most:
            return hits
        boundaries = self.context.capabilities.find("memory.boundaries")
        episode = None if boundaries is None else await boundaries(session)
        candidates = [Candidate(hit.id, hit.score, _scale(hit, session, now, episode)) for hit in hits]
        chosen = allocated(candidates, most, places=self._places, margin=self._margin)
        by_id = {hit.id: hit for hit in hits}
        return [by_id[each] for each in chosen]


def _scale(hit: Recalled, session: SessionHandle, now: datetime, episode: datetime | None) -> Scale:
    row = hit.observation
    if row is None:
        return "project"
    return scale_of(row.created_at, now, uses=row.use_count, episode=episode, own=row.session_id == session.id)
