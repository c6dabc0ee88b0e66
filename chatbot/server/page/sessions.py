"""Sessions: all of them, or those that are about something."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from chatbot.memory import SessionRecord
from chatbot.memory.session_search import SessionHit
from chatbot.operations import cursor_of
from chatbot.server.lists import place_of
from chatbot.server.page.routes import PageRoute, VisitHere
from chatbot.server.page.sheets import sheet
from chatbot.server.visit import Visit
from chatbot.stores.records import format_time

router = APIRouter(route_class=PageRoute, prefix="/i/{identity}")

_ON_A_PAGE = 40
_SEARCHED = 10_000


@dataclass(frozen=True, slots=True)
class Found:
    """A session with its matching line, in which the matched words are marked.

    `at` is the time of the entry with that line; empty if it is not in an entry.
    """

    record: SessionRecord
    line: tuple[tuple[str, bool], ...] = ()
    at: str = ""


@router.get("/sessions")
async def show(
    request: Request,
    visit: VisitHere,
    q: Annotated[str, Query(max_length=1_000)] = "",
    before: Annotated[str, Query(max_length=200)] = "",
    told: Annotated[str, Query(max_length=100)] = "",
) -> Response:
    """The one used last first."""
    done = "The session is deleted." if told == "deleted" else ""
    following = ""
    if q.strip():
        found = await _about(visit, q)
    else:
        records = await visit.sessions(limit=_ON_A_PAGE + 1, before=_place(before))
        found = [Found(record) for record in records[:_ON_A_PAGE]]
        following = cursor_of(found[-1].record) if len(records) > _ON_A_PAGE else ""
    return sheet(request, "sessions.html", visit, here="sessions", q=q, found=found, following=following, told=done)


async def _about(visit: Visit, q: str) -> list[Found]:
    """Return sessions whose title contains the text, which may be part of a word; then those whose messages match."""
    wanted = q.strip().casefold()
    titled = [each for each in await visit.sessions(limit=_SEARCHED) if wanted in each.title.casefold()]
    found = {record.id: Found(record) for record in titled[:_ON_A_PAGE]}
    for hit in await visit.search_sessions(q, limit=_ON_A_PAGE):
        found.setdefault(hit.record.id, Found(hit.record, _marked(hit), format_time(hit.at) if hit.number else ""))
    return list(found.values())[:_ON_A_PAGE]


def _marked(hit: SessionHit) -> tuple[tuple[str, bool], ...]:
    parts, at = [], 0
    for begin, end in hit.ranges:
        parts += [(hit.line[at:begin], False), (hit.line[begin:end], True)]
        at = end
    return (*parts, (hit.line[at:], False))


def _place(before: str) -> tuple[datetime, str] | None:
    return place_of(before) if before else None
