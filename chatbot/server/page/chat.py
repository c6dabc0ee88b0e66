"""Page of a conversation, with the live reply."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from markupsafe import Markup
from msgspec import structs

from chatbot import operations
from chatbot.attachments import split
from chatbot.chat.events import Notice, ToolFinished, ToolStarted, TurnEvent
from chatbot.chat.titles import title_of
from chatbot.errors import ChatbotError
from chatbot.memory.handle import Choices
from chatbot.messages import TextDelta
from chatbot.server import sse
from chatbot.server.dependencies import SessionId
from chatbot.server.errors import problem_of
from chatbot.server.identity_access import IdentityAccess
from chatbot.server.page import talk
from chatbot.server.page.markdown import GrowingText
from chatbot.server.page.rendering import AccessHere, PageRoute, base, render_html, render_page, render_part, sidebar
from chatbot.server.page.settings import menu_context, menus_for
from chatbot.server.turns import RemoteTurn, RunningTurn
from chatbot.stores.access import may
from chatbot.stores.errors import StoreError
from chatbot.stores.records import SessionRecord, parse_time

router = APIRouter(route_class=PageRoute, prefix="/i/{identity}")

_LEAST_PAUSE_S = 0.05
_WORK_SHARE = 10
"""Rendering a reply while it grows takes at most 1 / `_WORK_SHARE` of the time."""

Number = Annotated[int, Query(ge=0, le=100_000_000)]
Time = Annotated[str, Query(max_length=100)]


@router.get("")
async def begin(
    request: Request, access: AccessHere, project: Annotated[str | None, Query(max_length=100)] = None
) -> Response:
    """Show an empty conversation, in a project if one is given; its first message begins it."""
    return render_page(
        request,
        "chat.html",
        access,
        here="chat",
        session=None,
        project=access.in_project.caller.project if project is None else project,
        part=talk.TalkSpan(),
        welcome=await _welcome(access),
        choices=Choices(),
        menus=await menus_for(access),
    )


@router.get("/c/{session_id}")
async def show(
    request: Request,
    access: AccessHere,
    session_id: SessionId,
    *,
    edit: Time = "",
    at: Time = "",
    before: Number | None = None,
) -> Response:
    """Show the end of a conversation, or the part around the message sent `at` that time, or `before` an entry.

    `edit` is the time of a message to edit.
    """
    session = await access.session(session_id)
    moment = parse_time(at or edit) if at or edit else None
    if moment is not None:
        part = await talk.around(session, moment)
    else:
        part = await (talk.the_end(session) if before is None else talk.before(session, before))
    if part.is_end:
        await talk.mark_running(access, session_id, part.exchanges)
        await talk.add_failed(access, session_id, part.exchanges)
    return render_page(
        request,
        "chat.html",
        access,
        here="session",
        session=_with_title(session.record, part.exchanges),
        part=part,
        **await menu_context(access, session),
        deletion=await operations.get_deletion(access.context, session_id)
        if may(access.memory.caller, "erase")
        else None,
        edit=edit,
        shown_from=next((each.at for each in reversed(part.exchanges) if moment and at and each.moment <= moment), ""),
    )


def _with_title(record: SessionRecord, shown: list[talk.Exchange]) -> SessionRecord:
    """Return the record with the title from the first message, if that is not stored yet."""
    if record.title or not (shown and shown[0].turn):
        return record
    return structs.replace(record, title=title_of(shown[0].question or ""))


@router.get("/c/{session_id}/earlier")
async def earlier(access: AccessHere, session_id: SessionId, before: Number) -> Response:
    """Render the part of the conversation before an entry."""
    part = await talk.before(await access.session(session_id), before)
    return render_part("earlier.html", access, session_id=session_id, part=part)


@router.get("/c/{session_id}/later")
async def later(access: AccessHere, session_id: SessionId, after: Number) -> Response:
    """Render the part of the conversation after an entry."""
    part = await talk.after(await access.session(session_id), after)
    if part.is_end:
        await talk.mark_running(access, session_id, part.exchanges)
    return render_part("later.html", access, session_id=session_id, part=part)


@router.get("/c/{session_id}/since")
async def since(access: AccessHere, session_id: SessionId, after: Time = "", written: Time = "") -> Response:
    """Render the exchanges after the one of that time, made in another tab or on another device.

    Answers 205 if that one is gone or got another reply: then the page has to be reloaded.
    """
    session = await access.session(session_id)
    shown = await talk.since(session, parse_time(after), written) if after else (await talk.the_end(session)).exchanges
    if shown is None or any(turn.is_again for turn in await access.turns_under_way(session_id)):
        return Response(status_code=205)
    await talk.mark_running(access, session_id, shown)
    if not shown:
        return Response(status_code=204)
    return render_part(
        "since.html",
        access,
        session=session.record,
        session_id=session_id,
        exchanges=shown,
        sidebar=await sidebar(access),
        **await menu_context(access, session),
    )


@router.get("/c/{session_id}/stream")
async def listen(access: AccessHere, session_id: SessionId, turn: Time = "") -> Response:
    """Stream the running reply from its beginning in pieces of HTML; the last is the stored exchange."""
    running: RunningTurn | RemoteTurn | None = talk.turn_named(await access.latest_turns(session_id), turn)
    if turn == talk.ELSEWHERE:
        running = await access.listen(session_id)
    return sse.EventStream(_pieces(access, session_id, turn, running))


async def _pieces(
    access: IdentityAccess, session_id: str, name: str, turn: RunningTurn | RemoteTurn | None
) -> AsyncGenerator[bytes, None]:
    problem, at = "", ""
    if turn is not None:
        async for piece in _reply_events(turn):
            yield piece
        problem, at = await _result(access, turn)
    try:
        html = await _done(access, session_id, name, turn, at=at, problem=problem)
    except (ChatbotError, StoreError) as error:  # the session is deleted
        html = Markup('<article class="exchange"><p class="problem" role="alert">{}</p></article>')
        html = html.format(problem_of(error, access.caller).message)
    yield sse.event(html, "done")


async def _done(
    access: IdentityAccess, session_id: str, name: str, turn: RunningTurn | RemoteTurn | None, *, at: str, problem: str
) -> Markup:
    """Render the exchange of a turn that has ended, and the other parts of the page that a turn changes."""
    session = await access.session(session_id)
    part = await talk.the_end(session)
    waiting: list[talk.Exchange] = []
    await talk.mark_running(access, session_id, waiting)  # adds them
    waiting = [each for each in waiting if each.turn != name]
    exchange = _exchange_of(part.exchanges, turn, at)
    return render_html(
        "done.html",
        base=base(access),
        identity=access.identity,
        session=session.record,
        session_id=session_id,
        sidebar=await sidebar(access),
        exchange=exchange and replace(exchange, problem=problem),
        following=waiting[0] if waiting else None,
        problem=problem,
    )


def _exchange_of(shown: list[talk.Exchange], turn: RunningTurn | RemoteTurn | None, at: str) -> talk.Exchange | None:
    """Return the exchange of that time or turn, even if the turn failed before the transcript had it."""
    if not isinstance(turn, RunningTurn) or turn.is_again:
        return shown[-1] if shown else None
    later = [each for each in shown if each.moment >= turn.begun_at]
    same = [each for each in later if each.question == split(turn.text)[0]]
    of_turn = [each for each in shown if each.at == at] or same or later
    return of_turn[0] if of_turn else replace(talk.waiting_exchange(turn), turn="")


async def _reply_events(turn: RunningTurn | RemoteTurn) -> AsyncGenerator[bytes, None]:
    """Yield the events of a turn as HTML; text is collected briefly, to limit the number of updates."""
    text, waiting, due = GrowingText(), "", 0.0
    async for event in turn.events():
        if isinstance(event, TextDelta):
            waiting += event.text
        began = time.monotonic()
        if waiting and (began >= due or not isinstance(event, TextDelta)):
            for each in _text_events(text, waiting):
                yield each
            waiting = ""
            due = time.monotonic() + max(_LEAST_PAUSE_S, _WORK_SHARE * (time.monotonic() - began))
            await asyncio.sleep(0)
        if not isinstance(event, TextDelta):
            yield sse.event(text.end() + _event_line(event), "complete")
            yield sse.event(Markup(), "growing")
    if waiting:
        for each in _text_events(text, waiting):
            yield each
    yield sse.event(text.end(), "complete")


def _text_events(text: GrowingText, more: str) -> list[bytes]:
    complete, growing = text.add(more)
    return [*([sse.event(complete, "complete")] if complete else []), sse.event(growing, "growing")]


def _event_line(event: TurnEvent) -> Markup:
    match event:
        case ToolStarted(call):
            shown = f"uses {call.name}"
        case ToolFinished(result):
            shown = f"{result.call.name} {'failed' if result.is_error else 'answered'}"
        case Notice(text):
            shown = text
        case _:
            return Markup()
    return Markup('<p class="happening">{}</p>').format(shown)


async def _result(access: IdentityAccess, turn: RunningTurn | RemoteTurn) -> tuple[str, str]:
    """Return the error of the turn, which the transcript may not contain, and the time of its message if it ended."""
    try:
        return "", str((await turn.ended()).receipt["at"])
    except Exception as error:  # noqa: BLE001 - a plug-in's model may raise anything; the page shows it
        return problem_of(error, access.caller).message, ""


_SUGGESTIONS = (
    "My name is Alex, I live in Graz, and I am learning Italian.",
    "What do you know about me?",
    "Remind me to water the plants on Friday.",
)


async def _welcome(access: IdentityAccess) -> dict[str, Any]:
    """Return the empty state; only the owner sees where the memory is."""
    return {
        "is_new": not await access.memory.list_sessions(limit=1),
        "missing": await access.runtime.why_not_installed(),
        "is_tiny": access.runtime.uses_embedded_model,
        "remembers": access.runtime.remembers,
        "where": (access.memory.home or "PostgreSQL") if access.caller.is_owner else "",
        "suggestions": _SUGGESTIONS,
    }
