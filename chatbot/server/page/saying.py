"""Messages: send, stop, retry and edit them; fork and archive their session; show their files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response
from msgspec.structs import replace

from chatbot.attachments import is_image, media_of, split, with_links
from chatbot.attachments.read import Upload, upload_of
from chatbot.errors import ChatbotError
from chatbot.server.dependencies import SessionId
from chatbot.server.idempotency import WritingHere
from chatbot.server.identity_access import IdentityAccess
from chatbot.server.page import talk
from chatbot.server.page.rendering import AccessHere, Fields, PageRoute, base, goto, is_part, render_part
from chatbot.server.page.settings import choose, menu_context, prepare_turn
from chatbot.server.turns import RunningTurn
from chatbot.stores.errors import ConflictingChange, InvalidValue, StoreError
from chatbot.stores.records import TranscriptEntry, check_text, format_time, parse_time

router = APIRouter(route_class=PageRoute, prefix="/i/{identity}")
_NO_MESSAGE = "that message no longer exists: reload the conversation"


@router.post("/say")
async def say_first(access: AccessHere, fields: Fields) -> Response:
    """Begin a session with a message."""
    text, files = _message(fields), files_in(fields)
    session = await access.new_session()
    try:
        await choose(access, session, fields)
    except (ChatbotError, StoreError):  # such as a missing model
        await access.forget_new(session)
        raise
    return await _send(access, session.id, text, files)


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
    client = replace(await prepare_turn(access, session_id), again=True)
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
    text = with_links(text, split(entries[at].content)[1])
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
    return (await access.fork(session_id, at=end)).id


def _goto_session(access: IdentityAccess, session_id: str) -> Response:
    return goto(f"{base(access)}/c/{session_id}")


FILE_FIELD = "file:"
"""Beginning of the names of form fields with a file; a number and the file's name follow."""
_HEADERS = {
    "cache-control": "private, max-age=3600",
    "content-security-policy": "default-src 'none'; sandbox",
    "x-content-type-options": "nosniff",
}


@router.get("/c/{session_id}/file/{name}")
async def show_file(access: AccessHere, session_id: SessionId, name: Annotated[str, Path(max_length=64)]) -> Response:
    """Return a picture as it is, and any other file as a download."""
    data, media = await access.attachment(session_id, name), media_of(name)
    headers = _HEADERS if is_image(media) else {**_HEADERS, "content-disposition": "attachment"}
    return Response(data, media_type=media, headers=headers)


def files_in(fields: Mapping[str, str]) -> list[Upload]:
    """Return the files of a form. Raises `InvalidValue` for a field that is not a `data:` URL."""
    return [
        upload_of(name.removeprefix(FILE_FIELD).partition(":")[2] or "file", value)
        for name, value in fields.items()
        if name.startswith(FILE_FIELD)
    ]
