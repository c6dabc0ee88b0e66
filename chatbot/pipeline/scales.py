"""Four scales of time, computed when something is asked for: now, the task, the session, everything. Pure.

    immediate   5 minutes    1 place
    task        30 minutes   2
    session     2 hours      1
    project     unbounded    1

What was used proves durable and is promoted: one scale at 2 uses, two at 4, three at 8. What lies before the last
boundary of its session belongs to an earlier episode, and so to the session at least.

Places are a tie-break. A row takes the place that its scale has free only where the row that has to go scores hardly
more: kept strictly, one place for everything older than two hours would throw four of five good answers away.

On LoCoMo's questions, its sessions moved to 40 minutes apart, R@5 is 63.6 without places, 63.9 with a margin of 0.01 to
0.05, and 63.6 from 0.1 on. With their own dates all rows are of one scale, and nothing changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, get_args

Scale = Literal["immediate", "task", "session", "project"]
SCALES: tuple[Scale, ...] = get_args(Scale)
WINDOWS_S: Mapping[Scale, float] = {"immediate": 300.0, "task": 1_800.0, "session": 7_200.0}
"""How far back each scale reaches, in seconds; `project` has no end."""
PLACES: Mapping[Scale, int] = {"immediate": 1, "task": 2, "session": 1, "project": 1}
MARGIN = 0.02
"""How much more a row may score and still make room, on the scale from 0 to 1."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A row that may be chosen."""

    id: str
    score: float
    scale: Scale


def scale_of(
    created_at: datetime, now: datetime, *, uses: int = 0, episode: datetime | None = None, own: bool = False
) -> Scale:
    """The scale of a row. `episode` is when the present stretch began; it concerns rows of the session itself, `own`.

    A row of the future, which a clock that jumped back makes of any, is immediate.
    """
    age = (now - created_at).total_seconds()
    place = next((at for at, scale in enumerate(SCALES) if age <= WINDOWS_S.get(scale, age)), len(SCALES) - 1)
    if own and episode is not None and created_at < episode:
        place = max(place, SCALES.index("session"))
    return SCALES[min(place + max(0, uses.bit_length() - 1), len(SCALES) - 1)]


def allocated(
    candidates: Sequence[Candidate], most: int, *, places: Mapping[Scale, int] = PLACES, margin: float = MARGIN
) -> list[str]:
    """The ids of at most `most` candidates, which are given best first; the chosen stand best first too."""
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
