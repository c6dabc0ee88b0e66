"""List and search of memories, with score details."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response

from chatbot.memory.reading import Hit
from chatbot.server.lists import RANK, gone
from chatbot.server.page.routes import PageRoute, VisitHere
from chatbot.server.page.sheets import sheet
from chatbot.stores.access import SENSITIVITIES, Sensitivity
from chatbot.stores.observation import STATUSES, TYPES, Status, Type

router = APIRouter(route_class=PageRoute, prefix="/i/{identity}")

_ON_A_PAGE = 25
PART_NAMES = {
    "match": "match",
    "recency": "recency",
    "mention": "mentions",
    "importance": "importance",
    "credibility": "credibility",
    "lexical": "lexical match",
    "spill": "neighbouring messages",
    "session": "session",
    "meaning": "meaning",
}
"""Labels of the score details."""
WEIGHED = frozenset({"match", "recency", "mention", "importance", "credibility"})
"""Weighted parts between 0 and 1; the others are parts of the match."""


@router.get("/memory")
async def show(
    request: Request,
    visit: VisitHere,
    *,
    q: Annotated[str, Query(max_length=10_000)] = "",
    kind: Annotated[Type | Literal[""], Query(alias="type")] = "",
    status: Status = "active",
    person: Annotated[str, Query(max_length=1_000)] = "",
    delicate: bool = False,
    after: Annotated[str, Query(max_length=100)] = "",
    told: Annotated[str, Query(max_length=100)] = "",
) -> Response:
    """Search active memories, or list those of another status."""
    ask: tuple[Sensitivity, ...] = SENSITIVITIES if delicate else ("public",)
    wanted: dict[str, Any] = {"types": (kind,) if kind else (), "people": (person,) if person else ()}
    following: str | None = ""
    begin = 0
    if q.strip() and status == "active":
        begin = _begin(after)
        hits = await visit.memories.search(q, limit=_ON_A_PAGE + 1, offset=begin, ask=ask, count_use=False, **wanted)
        following = str(begin + _ON_A_PAGE) if len(hits) > _ON_A_PAGE else ""
        hits = hits[:_ON_A_PAGE]
    else:
        page = await visit.memories.list_observations(
            limit=_ON_A_PAGE, cursor=after or None, ask=ask, statuses=(status,), **wanted
        )
        hits, following = [Hit(row, 0.0) for row in page.rows], page.after
    return sheet(
        request,
        "memories.html",
        visit,
        here="memory",
        hits=hits,
        following=following,
        begin=begin,
        asked={"q": q, "type": kind, "status": status, "person": person, "delicate": delicate},
        types=TYPES,
        statuses=STATUSES,
        told="Deleted permanently." if told == "erased" else "",
        part_names=PART_NAMES,
        weighed=WEIGHED,
    )


def _begin(after: str) -> int:
    """Parse the number of hits on the pages before; reject other values."""
    if after and not re.fullmatch(RANK, after):
        raise gone(after)
    return int(after or 0)
