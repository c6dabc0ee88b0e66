"""Choose among recalled rows by their age.

There are four scales of time, computed at each query:

    immediate   5 minutes    1 place
    task        30 minutes   2
    session     2 hours      1
    project     unbounded    1

A row that is used often is promoted: one scale at 2 uses, two at 4, three at 8. A row from before the last boundary of
its session belongs to an earlier episode, and is of the scale `session` at least.

Places are a tie-break. A row takes a free place of its scale only from a row that scores hardly more: kept strictly,
the single place for everything older than two hours would drop four of five good answers.

On LoCoMo's questions, with sessions moved to 40 minutes apart, R@5 is 63.6 without places, 63.9 with a margin of 0.01
to 0.05, and 63.6 from 0.1 on. With their own dates all rows are of one scale, and nothing changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal, get_args

from msgspec import Meta

from chatbot.chat.events import CHOOSE
from chatbot.hooks.hook import Hook, HookContext
from chatbot.memory import SessionHandle
from chatbot.memory.recall import RankedMemory

Scale = Literal["immediate", "task", "session", "project"]
SCALES: tuple[Scale, ...] = get_args(Scale)
WINDOWS_S: Mapping[Scale, float] = {"immediate": 300.0, "task": 1_800.0, "session": 7_200.0}
"""Reach of each scale in seconds; `project` has no end."""
PLACES: Mapping[Scale, int] = {"immediate": 1, "task": 2, "session": 1, "project": 1}
MARGIN = 0.02
"""Largest lead in score, from 0 to 1, at which a row still gives up its place."""

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
        context.capabilities.provide(CHOOSE, self.choose)

    async def handle(self, event: Any) -> None:
        """Do nothing: this hook only provides a capability."""

    async def choose(
        self, session: SessionHandle, hits: Sequence[RankedMemory], most: int, now: datetime
    ) -> Sequence[RankedMemory]:
        """Return at most `most` of the hits, which are given best first."""
        if len(hits) <= most:
            return hits
        boundaries = self.context.capabilities.find("memory.boundaries")
        episode = None if boundaries is None else await boundaries(session)
        candidates = [Candidate(hit.id, hit.score, _scale(hit, session, now, episode)) for hit in hits]
        chosen = allocated(candidates, most, places=self._places, margin=self._margin)
        by_id = {hit.id: hit for hit in hits}
        return [by_id[each] for each in chosen]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A row that may be chosen."""

    id: str
    score: float
    scale: Scale


def scale_of(
    created_at: datetime, now: datetime, *, uses: int = 0, episode: datetime | None = None, own: bool = False
) -> Scale:
    """Return the scale of a row.

    `episode` is when the present episode began; it counts only for rows of the session itself, `own`. A row from the
    future, as a clock that jumped back leaves behind, is immediate.
    """
    age = (now - created_at).total_seconds()
    place = next((at for at, scale in enumerate(SCALES) if age <= WINDOWS_S.get(scale, age)), len(SCALES) - 1)
    if own and episode is not None and created_at < episode:
        place = max(place, SCALES.index("session"))
    return SCALES[min(place + max(0, uses.bit_length() - 1), len(SCALES) - 1)]


def allocated(
    candidates: Sequence[Candidate], most: int, *, places: Mapping[Scale, int] = PLACES, margin: float = MARGIN
) -> list[str]:
    """Return the ids of at most `most` candidates, which are given best first; the result is best first too."""
    chosen, left = list(candidates[:most]), list(candidates[most:])
    held = Counter(each.scale for each in chosen)
    for rival in left:
        if held[rival.scale] >= places.get(rival.scale, 0):
            continue
        surplus = [each for each in chosen if held[each.scale] > places.get(each.scale, 0)]
        if surplus and (weakest := min(reversed(surplus), key=lambda each: each.score)).score - rival.score <= margin:
            chosen[chosen.index(weakest)] = rival
            held.update({rival.scale: 1, weakest.scale: -1})
    return [each.id for each in sorted(chosen, key=lambda each: -each.score)]


def _scale(hit: RankedMemory, session: SessionHandle, now: datetime, episode: datetime | None) -> Scale:
    row = hit.observation
    if row is None:
        return "project"
    return scale_of(row.created_at, now, uses=row.use_count, episode=episode, own=row.session_id == session.id)
