"""Page of a conversation: its live reply, and its forms: send, stop, retry and edit messages; fork and archive it."""

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response
from markupsafe import Markup
from msgspec import structs

from chatbot import operations
from chatbot.attachments import is_image, media_of, split_links, with_links
from chatbot.attachments.read import Upload, upload_of
from chatbot.chat.events import Notice, ToolFinished, ToolStarted, TurnEvent
from chatbot.chat.titles import title_of
from chatbot.errors import ChatbotError
from chatbot.memory.handle import Choices
from chatbot.messages import TextDelta
from chatbot.server import sse
from chatbot.server.dependencies import SessionId
from chatbot.server.errors import problem_of
from chatbot.server.idempotency import WritingHere
from chatbot.server.identity_access import IdentityAccess
from chatbot.server.native.conversation import AS_A_DOWNLOAD
from chatbot.server.page import talk
from chatbot.server.page.markdown import GrowingText
from chatbot.server.page.rendering import (
    AccessHere,
    Fields,
    PageRoute,
    base,
    goto,
    is_part,
    render_html,
    render_page,
    render_part,
    sidebar,
)
from chatbot.server.page.settings import choose, menu_context, menus_for, prepare_turn
from chatbot.server.request_values import Line
from chatbot.server.turns import RemoteTurn, RunningTurn
from chatbot.stores.access import may
from chatbot.stores.errors import ConflictingChange, InvalidValue, StoreError
from chatbot.stores.records import SessionRecord, TranscriptEntry, check_text, format_time, parse_time

router = APIRouter(route_class=PageRoute, prefix="/i/{identity}")
_NO_MESSAGE = "that message no longer exists: reload the conversation"

_LEAST_PAUSE_S = 0.05
_WORK_SHARE = 10
"""Rendering a reply while it grows takes at most 1 / `_WORK_SHARE` of the time."""

Number = Annotated[int, Query(ge=0, le=100_000_000)]
Time = Annotated[str, Query(max_length=100)]


@router.get("")
async def show_empty(request: Request, access: AccessHere, project: Annotated[Line | None, Query()] = None) -> Response:
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
async def show_new(access: AccessHere, session_id: SessionId, after: Time = "", written: Time = "") -> Response:
    """Render the exchanges after the one of that time, made in another tab or on another device.

    Answers 205 if that one is gone or got another reply: then the page has to be reloaded.
    """
    session = await access.session(session_id)
    shown = (
        await talk.exchanges_since(session, parse_time(after), written)
        if after
        else (await talk.the_end(session)).exchanges
    )
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
        exchange=exchange and structs.replace(exchange, problem=problem),
        following=waiting[0] if waiting else None,
        problem=problem,
    )


def _exchange_of(shown: list[talk.Exchange], turn: RunningTurn | RemoteTurn | None, at: str) -> talk.Exchange | None:
    """Return the exchange of that time or turn, even if the turn failed before the transcript had it."""
    if not isinstance(turn, RunningTurn) or turn.is_again:
        return shown[-1] if shown else None
    later = [each for each in shown if each.moment >= turn.begun_at]
    same = [each for each in later if each.question == split_links(turn.text)[0]]
    of_turn = [each for each in shown if each.at == at] or same or later
    return of_turn[0] if of_turn else structs.replace(talk.waiting_exchange(turn), turn="")


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
    "My name is Alex and I like chess.",
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
        "uses_tools": access.runtime.uses_tools,
        "where": (access.memory.home or "PostgreSQL") if access.caller.is_owner else "",
        "suggestions": _SUGGESTIONS,
    }


@router.post("/say")
async def say_first(access: AccessHere, fields: Fields, writing: WritingHere) -> Response:
    """Begin a session with a message; the same request sent again leads to the same session."""
    if writing.before is not None:
        return _goto_session(access, writing.before["session"])
    text, files = _message(fields), files_in(fields)
    session = await access.new_session()
    try:
        await choose(access, session, fields)
        await _begin(access, session.id, text, files)
    except (ChatbotError, StoreError):  # such as a missing model
        await access.forget_new(session)
        raise
    writing.note(session=session.id)
    return _goto_session(access, session.id)


@router.post("/c/{session_id}/say")
async def say(
    request: Request, access: AccessHere, session_id: SessionId, fields: Fields, writing: WritingHere
) -> Response:
    """Send a message; while another is being answered it waits. Answers 204 if the same request was sent before."""
    if writing.before is not None:
        return Response(status_code=204)
    text, files = _message(fields), files_in(fields)
    session = await access.session(session_id)
    if "turn" in fields:  # a message with files that failed is sent again
        failed = talk.turn_named(await access.latest_turns(session_id), fields["turn"])
        if failed is None or not failed.files:
            raise ConflictingChange(_NO_MESSAGE)
        files = list(failed.files)
    is_changed = await choose(access, session, fields)
    if not is_part(request):
        return await _send(access, session_id, text, files)
    turn = await _begin(access, session_id, text, files)
    writing.note()
    waiting = len(await access.turns_under_way(session_id)) > 1
    shown: dict[str, Any] = {"session_id": session_id, "exchanges": [talk.waiting_exchange(turn)], "waiting": waiting}
    if is_changed:
        shown |= await menu_context(access, session)
    return render_part("said.html", access, **shown)


@router.post("/c/{session_id}/stop")
async def stop(request: Request, access: AccessHere, session_id: SessionId, fields: Fields) -> Response:
    """Stop the running reply and keep its text so far, or stop the waiting `turn` and drop its message."""
    turns = await access.turns_under_way(session_id)
    (await access.session(session_id)).check("chat")
    name = fields.get("turn")
    if (turn := talk.turn_named(turns, name) if name else next(iter(turns), None)) is not None:
        turn.task.cancel()
    if not turns:
        await access.stop(session_id)
    return Response("") if is_part(request) else _goto_session(access, session_id)


@router.post("/c/{session_id}/retry")
async def retry(access: AccessHere, session_id: SessionId, fields: Fields) -> Response:
    """Answer the last message again, or the one sent `at` that time; an earlier one in a fork."""
    entries = await (await access.session(session_id)).transcript_read_all() if "at" in fields else []
    at = _position(entries, fields) if entries else 0
    if any(entry.role == "user" for entry in entries[at + 1 :]):
        return await _send(access, await _fork(access, session_id, fields, keep_message=False), entries[at].content)
    await _stop_last(access, session_id)
    asked = await (await access.chat(session_id)).last_message()
    if asked is None:
        raise ConflictingChange("no message to answer again")
    client = structs.replace(await prepare_turn(access, session_id), again=True)
    await access.begin_turn(session_id, asked, client=client)
    return _goto_session(access, session_id)


@router.post("/c/{session_id}/choose")
async def choose_reply(access: AccessHere, session_id: SessionId, fields: Fields) -> Response:
    """Show the model another reply to the last message from now on."""
    if await access.turns_under_way(session_id):
        raise ConflictingChange("a reply is being written: stop it first")
    number = fields.get("reply", "")
    chat = await access.chat(session_id)
    is_number = number.isdecimal() and len(number) < 8
    await chat.choose_reply(parse_time(fields.get("at", "")), int(number) if is_number else 0)
    return _goto_session(access, session_id)


@router.post("/c/{session_id}/edit")
async def edit(access: AccessHere, session_id: SessionId, fields: Fields) -> Response:
    """Edit a message. The last one is replaced; an earlier one is edited in a fork."""
    text = _message(fields)
    session = await access.session(session_id)
    entries = await session.transcript_read_all()
    at = _position(entries, fields)
    text = with_links(text, split_links(entries[at].content)[1])
    if any(entry.role == "user" for entry in entries[at + 1 :]):
        fork = await _fork(access, session_id, fields, keep_message=False)
        return await _send(access, fork, text)
    await _stop_last(access, session_id)
    client = await prepare_turn(access, session_id)  # before the message is taken back, as it may raise
    await (await access.chat(session_id)).take_back(to_ask_again=True)
    await access.begin_turn(session_id, text, client=client)
    return _goto_session(access, session_id)


@router.post("/c/{session_id}/fork")
async def fork(access: AccessHere, session_id: SessionId, fields: Fields) -> Response:
    """Fork the session after a message and its reply, or at its end."""
    return _goto_session(access, await _fork(access, session_id, fields, keep_message=True))


@router.post("/c/{session_id}/archive")
async def archive(access: AccessHere, session_id: SessionId, fields: Fields) -> Response:
    """Archive the session, or restore it; a search finds it either way."""
    await access.session(session_id)  # raises if it is hidden from the caller
    await access.memory.archive_session(session_id, undo=fields.get("archived") == "no")
    return goto(f"{base(access)}{fields.get('back') or f'/c/{session_id}'}")


def _message(fields: Fields) -> str:
    """Return the text of a form. Raises `InvalidValue` if it is empty, unless files are sent, or sent again."""
    text = fields.get("text", "")
    has_files = "turn" in fields or any(each.startswith(FILE_FIELD) for each in fields)
    if not (check_text(text, "the message").strip() or has_files):
        raise InvalidValue("the message is empty")
    return text


def _position(entries: list[TranscriptEntry], fields: Fields) -> int:
    for at, entry in enumerate(entries):
        if entry.role == "user" and format_time(entry.at) == fields.get("at"):
            return at
    raise ConflictingChange(_NO_MESSAGE)


async def _send(access: IdentityAccess, session_id: str, text: str, files: Sequence[Upload] = ()) -> Response:
    await _begin(access, session_id, text, files)
    return _goto_session(access, session_id)


async def _begin(access: IdentityAccess, session_id: str, text: str, files: Sequence[Upload]) -> RunningTurn:
    client = await prepare_turn(access, session_id)
    return await access.begin_turn(session_id, text, attachments=files, client=client)


async def _stop_last(access: IdentityAccess, session_id: str) -> None:
    """Stop the running reply. Raises `ConflictingChange` while messages wait for it, which would be lost."""
    if len(await access.turns_under_way(session_id)) > 1:
        raise ConflictingChange("messages are waiting for the reply: let it end, or remove them")
    await access.stop(session_id)


async def _fork(access: IdentityAccess, session_id: str, fields: Fields, *, keep_message: bool) -> str:
    end = None
    if "at" in fields:
        entries = await (await access.session(session_id)).transcript_read_all()
        begin = _position(entries, fields)
        following = (n for n, entry in enumerate(entries[begin + 1 :], begin + 1) if entry.role == "user")
        end = next(following, len(entries)) if keep_message else begin
    return (await access.memory.fork_session(session_id, at=end)).id


def _goto_session(access: IdentityAccess, session_id: str) -> Response:
    return goto(f"{base(access)}/c/{session_id}")


FILE_FIELD = "file:"
"""Beginning of the names of form fields with a file; a number and the file's name follow."""


@router.get("/c/{session_id}/file/{name}")
async def show_file(access: AccessHere, session_id: SessionId, name: Annotated[str, Path(max_length=64)]) -> Response:
    """Return a picture as it is, and any other file as a download."""
    data, media = await access.attachment(session_id, name), media_of(name)
    headers = {**AS_A_DOWNLOAD, "cache-control": "private, max-age=3600"}
    if is_image(media):
        headers["content-disposition"] = "inline"
    return Response(data, media_type=media, headers=headers)


def files_in(fields: Mapping[str, str]) -> list[Upload]:
    """Return the files of a form. Raises `InvalidValue` for a field that is not a `data:` URL."""
    return [
        upload_of(name.removeprefix(FILE_FIELD).partition(":")[2] or "file", value)
        for name, value in fields.items()
        if name.startswith(FILE_FIELD)
    ]
