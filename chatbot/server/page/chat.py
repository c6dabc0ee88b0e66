"""A conversation: what was said, and the reply as it comes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from markupsafe import Markup

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
from stores.base import TranscriptStore
from stores.errors import StoreError

router = APIRouter(route_class=PageRoute, prefix="/i/{identity}")

_SESSIONS_BESIDE = 30
_ENTRIES = 60
_MOST_ENTRIES = 100_000
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
    last: Annotated[int, Query(ge=1, le=_MOST_ENTRIES)] = _ENTRIES,
    edit: Annotated[str, Query(max_length=100)] = "",
) -> Response:
    """The end of a conversation; `edit` is the time of a message that is to be said otherwise."""
    session = await visit.session(session_id)
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
        edit=edit,
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
    """The last exchange as it is kept, and what else on the page a turn changes."""
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
    """What arrives is gathered for a moment, so that a quick model costs no more than a slow one."""
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
    """What went wrong, where the transcript does not say it."""
    try:
        await turn.ended()
    except (ChatbotError, StoreError) as error:
        return problem_of(error, visit.caller).message
    except Exception as error:  # noqa: BLE001 - a model may be a stranger's; the reader shall know
        return unexpected(error).message
    return ""


async def _exchanges(visit: Visit, session_id: str, last: int) -> list[Exchange]:
    session = await visit.session(session_id)
    return exchanges(await session.transcript_read_last(last)) if session.supports(TranscriptStore) else []
