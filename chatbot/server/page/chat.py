"""Page of a conversation, with the live reply."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from markupsafe import Markup

from chatbot import operations
from chatbot.chat import Event, Notice, ToolFinished, ToolStarted
from chatbot.errors import ChatbotError
from chatbot.messages import TextDelta
from chatbot.server import sse
from chatbot.server.errors import problem_of, unexpected
from chatbot.server.page.exchanges import Exchange, exchanges
from chatbot.server.page.markdown import Growing
from chatbot.server.page.routes import PageRoute, SessionId, VisitHere
from chatbot.server.page.sheets import base, piece, sheet
from chatbot.server.turns import RunningTurn
from chatbot.server.visit import Visit
from chatbot.stores.access import may
from chatbot.stores.base import TranscriptStore
from chatbot.stores.errors import StoreError
from chatbot.stores.records import parse_time

router = APIRouter(route_class=PageRoute, prefix="/i/{identity}")

_SESSIONS_BESIDE = 30
_ENTRIES = 60
_MOST_ENTRIES = 100_000
_BEFORE = 6
"""Entries shown before the requested message as context."""
_LEAST_PAUSE_S = 0.05
_WORK_SHARE = 10
"""Rendering a reply while it grows takes at most one part in so many of the time."""


@router.get("")
async def begin(request: Request, visit: VisitHere) -> Response:
    """A conversation that begins with the first message."""
    beside = await visit.sessions(limit=_SESSIONS_BESIDE)
    return sheet(request, "chat.html", visit, here="chat", session=None, exchanges=[], beside=beside, live=None)


@router.get("/c/{session_id}")
async def show(
    request: Request,
    visit: VisitHere,
    session_id: SessionId,
    *,
    last: Annotated[int, Query(ge=1, le=_MOST_ENTRIES)] = _ENTRIES,
    edit: Annotated[str, Query(max_length=100)] = "",
    at: Annotated[str, Query(max_length=100)] = "",
) -> Response:
    """Show the end of a conversation, back to the message sent `at` that time.

    `edit` is the time of a message to edit.
    """
    session = await visit.session(session_id)
    moment = parse_time(at) if at else None
    last = max(last, await _entries_since(visit, session_id, moment) + _BEFORE) if moment else last
    told = await _exchanges(visit, session_id, last + 1)
    turns = await visit.turns_under_way(session_id)
    if turns and not (told and told[-1].moment >= turns[0].begun_at):
        told.append(Exchange("", turns[0].begun_at, turns[0].text))  # it is not written down yet
    return sheet(
        request,
        "chat.html",
        visit,
        here="chat",
        session=session.record,
        exchanges=told,
        beside=await visit.sessions(limit=_SESSIONS_BESIDE),
        live=told[-1].at if turns else None,
        going=await operations.get_deletion(visit.context, session_id) if may(visit.memory, "erase") else None,
        edit=edit,
        shown_from=_exchange_at(told, moment) if moment else "",
        more=2 * last if sum(len(each.answers) + 1 for each in told) > last else 0,
    )


@router.get("/c/{session_id}/stream")
async def listen(visit: VisitHere, session_id: SessionId) -> Response:
    """The reply under way, from its beginning on, in pieces of HTML; the last of them is the exchange as it is kept."""
    turns = await visit.turns_under_way(session_id)
    events = _pieces(visit, session_id, turns[0] if turns else None)
    return sse.EventStream(events)


async def _pieces(visit: Visit, session_id: str, turn: RunningTurn | None) -> AsyncGenerator[bytes, None]:
    problem = ""
    if turn is not None:
        async for piece_ in _growing(turn):
            yield piece_
        problem = await _problem(visit, turn)
    yield sse.event(await _done(visit, session_id, problem), "done")


async def _done(visit: Visit, session_id: str, problem: str) -> Markup:
    """Render the stored last exchange and the other parts of the page that a turn changes."""
    told = await _exchanges(visit, session_id, _ENTRIES)
    return piece(
        "done.html",
        base=base(visit),
        identity=visit.identity,
        session=(await visit.session(session_id)).record,
        session_id=session_id,
        beside=await visit.sessions(limit=_SESSIONS_BESIDE),
        exchange=told[-1] if told else None,
        is_last=True,
        problem=problem,
    )


async def _growing(turn: RunningTurn) -> AsyncGenerator[bytes, None]:
    """Collect chunks for a moment, so that a fast model causes no more updates than a slow one."""
    text, waiting, due = Growing(), "", 0.0
    async for event in turn.events():
        if not isinstance(event, TextDelta):
            if waiting:
                for each in _grown(text, waiting):
                    yield each
                waiting = ""
            yield sse.event(text.end() + _happening(event), "complete")
            yield sse.event(Markup(), "growing")
            continue
        waiting += event.text
        began = time.monotonic()
        if began >= due:
            for each in _grown(text, waiting):
                yield each
            waiting = ""
            due = time.monotonic() + max(_LEAST_PAUSE_S, _WORK_SHARE * (time.monotonic() - began))
            await asyncio.sleep(0)
    if waiting:
        for each in _grown(text, waiting):
            yield each
    yield sse.event(text.end(), "complete")


def _grown(text: Growing, more: str) -> list[bytes]:
    complete, growing = text.add(more)
    return [*([sse.event(complete, "complete")] if complete else []), sse.event(growing, "growing")]


def _happening(event: Event) -> Markup:
    match event:
        case ToolStarted(call):
            told = f"uses {call.name}"
        case ToolFinished(result):
            told = f"{result.call.name} {'failed' if result.is_error else 'answered'}"
        case Notice(text):
            told = text
        case _:
            return Markup()
    return Markup('<p class="happening">{}</p>').format(told)


async def _problem(visit: Visit, turn: RunningTurn) -> str:
    """Return the error if the transcript does not contain it."""
    try:
        await turn.ended()
    except (ChatbotError, StoreError) as error:
        return problem_of(error, visit.caller).message
    except Exception as error:  # noqa: BLE001 - a model may be a stranger's; the reader shall know
        return unexpected(error).message
    return ""


async def _entries_since(visit: Visit, session_id: str, moment: datetime) -> int:
    """Count the entries from the one of that moment to the end; 0 where none is as old."""
    session = await visit.session(session_id)
    if not session.supports(TranscriptStore):
        return 0
    entries = await session.transcript_read_last(_MOST_ENTRIES)
    return next((len(entries) - index for index, entry in enumerate(entries) if entry.at >= moment), 0)


def _exchange_at(told: list[Exchange], moment: datetime) -> str:
    """Return the time that names the exchange of that moment; empty where it is not there."""
    return next((each.at for each in reversed(told) if each.moment <= moment), "")


async def _exchanges(visit: Visit, session_id: str, last: int) -> list[Exchange]:
    session = await visit.session(session_id)
    return exchanges(await session.transcript_read_last(last)) if session.supports(TranscriptStore) else []
